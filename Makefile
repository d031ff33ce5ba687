# make dist   static binaries, Debian packages and SHA256SUMS in dist/
# make bench  how fast and small it is, beside the least that it could be
#             (docs/performance.md)
# make clean  removes dist/

# As Go's own build information would show it; -X because that is empty where
# GOFLAGS has -buildvcs=false.
VERSION := $(or $(VERSION),$(shell deploy/version))
# Packages carry the time of the last commit, so that a second build has the
# same bytes.
SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || echo 0))
export SOURCE_DATE_EPOCH

DIST = dist
BINARIES = $(addprefix $(DIST)/mavrest-linux-,armv6 armv7 arm64 amd64)

# What makes the binary 0.8 MB smaller and costs no speed: no HTTP/2, which
# net/http speaks over TLS only, and no inlining in what runs rarely or, as the
# TLS that net/http links, never. docs/performance.md has the figures.
RARE = crypto/... encoding/asn1 fmt log/... math/... mime/... net regexp/... strings
RELEASE = -trimpath -buildvcs=false -tags nethttpomithttp2 $(RARE:%=-gcflags=%=-l)

.PHONY: all dist bench clean FORCE
all: dist

# armhf gets ARMv6 code: Raspberry Pi OS calls a Pi Zero armhf too.
dist: $(BINARIES)
	rm -f dist/*.deb dist/SHA256SUMS
	deploy/build-deb dist/mavrest-linux-armv6 armhf '$(VERSION)' dist
	deploy/build-deb dist/mavrest-linux-arm64 arm64 '$(VERSION)' dist
	deploy/build-deb dist/mavrest-linux-amd64 amd64 '$(VERSION)' dist
	cd dist && sha256sum mavrest* >SHA256SUMS

# 16 KiB is the largest page that 32-bit ARM runs on; the linker's own 64 KiB is
# 66 kB more of padding.
$(DIST)/mavrest-linux-armv%: align = -R 16384
$(DIST)/mavrest-linux-armv6: env = GOARCH=arm GOARM=6
$(DIST)/mavrest-linux-armv7: env = GOARCH=arm GOARM=7
$(DIST)/mavrest-linux-arm64: env = GOARCH=arm64
$(DIST)/mavrest-linux-amd64: env = GOARCH=amd64

# Always asked of go build, which knows best what is up to date.
$(BINARIES): FORCE
	CGO_ENABLED=0 GOOS=linux $(env) go build $(RELEASE) \
		-ldflags '-s -w $(align) -X main.version=$(VERSION)' -o $@ .

bench:
	go test -run '^$$' -bench . .

clean:
	rm -rf dist
