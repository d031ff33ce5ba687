# make dist   static binaries, Debian packages and SHA256SUMS in dist/
# make clean  removes dist/

# As Go's own build information would show it; -X because that is empty where
# GOFLAGS has -buildvcs=false.
VERSION := $(or $(VERSION),$(shell deploy/version))
# Packages carry the time of the last commit, so that a second build has the
# same bytes.
SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || echo 0))
export SOURCE_DATE_EPOCH

BINARIES = $(addprefix dist/mavrest-linux-,armv6 armv7 arm64 amd64)

# Two things make the binary 0.85 MB smaller, and cost nothing where time is
# spent. HTTP/2 needs TLS, which is not served. And only what runs often is
# inlined: net/http links all of TLS, which never runs here.
RELEASE = -trimpath -buildvcs=false -tags nethttpomithttp2 -gcflags=all=-l \
	$(addprefix -gcflags=,runtime/...= internal/...= encoding/json= bufio= net/http= mavrest=)

.PHONY: all dist clean FORCE
all: dist

# armhf gets ARMv6 code: Raspberry Pi OS calls a Pi Zero armhf too.
dist: $(BINARIES)
	rm -f dist/*.deb dist/SHA256SUMS
	deploy/build-deb dist/mavrest-linux-armv6 armhf '$(VERSION)' dist
	deploy/build-deb dist/mavrest-linux-arm64 arm64 '$(VERSION)' dist
	deploy/build-deb dist/mavrest-linux-amd64 amd64 '$(VERSION)' dist
	cd dist && sha256sum mavrest* >SHA256SUMS

dist/mavrest-linux-armv6: env = GOARCH=arm GOARM=6
dist/mavrest-linux-armv7: env = GOARCH=arm GOARM=7
dist/mavrest-linux-arm64: env = GOARCH=arm64
dist/mavrest-linux-amd64: env = GOARCH=amd64

# Always asked of go build, which knows best what is up to date.
$(BINARIES): FORCE
	CGO_ENABLED=0 GOOS=linux $(env) go build $(RELEASE) \
		-ldflags '-s -w -X main.version=$(VERSION)' -o $@ .

clean:
	rm -rf dist
