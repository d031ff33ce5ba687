# make help   these lines; so does make alone
# make dist   static binaries, Debian packages and SHA256SUMS in dist/; in
#             dist/raspberry-pi/ two files that turn a Raspberry Pi OS card into a
#             drone (dist/raspberry-pi-32bit/: for the 32-bit system)
# make image  dist/mavrest-rpi.img, an SD card for a Raspberry Pi, and a list of what
#             is in it. Another port: make image OPTIONS="-device /dev/ttyACM0"
# make image-test  boots that card in qemu, flies, and cuts the power ten times
#             (Debian: qemu-system-arm mtools curl)
# make bench  how fast and small it is, baselines, and the program of the last
#             commit beside it (docs/performance.md; another one: BEFORE=REVISION)
# make facts AUTOPILOT=udpin://127.0.0.1:14540 OBSERVER=udpin://127.0.0.1:14550
#             arms and flies the simulated vehicle there, and compares it with
#             docs/autopilots.md (TRANSMITTER=127.0.0.1:5501 for ArduPilot's SITL)
# make screenshots  pictures of the page, in docs/ (root on a Debian)
# make clean  removes dist/

# The packages' version; the program contains its own.
VERSION := $(or $(VERSION),$(shell deploy/version))
# Packages have the time of the last commit, so a second build gives the same bytes.
SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || echo 0))
export SOURCE_DATE_EPOCH

# Where the binaries go: the benchmarks build theirs elsewhere. Packages are made in dist/ only.
DIST = dist
BINARIES = $(addprefix $(DIST)/mavrest-linux-,armv6 armv7 arm64 amd64)

# The linker fills a 32-bit ARM binary up with 0.1 MB of zeros, for kernels with pages of 64 kB: those that run
# it have pages of 4 kB, or of 16 kB.
$(DIST)/mavrest-linux-armv6 $(DIST)/mavrest-linux-armv7: pages = -R 0x4000

# net/http uses HTTP/2 only over TLS, which mavrest does not have.
RELEASE = -trimpath -tags nethttpomithttp2

# What make bench measures beside the source as it is; empty: nothing.
BEFORE = HEAD

# mavrest's options in the image, and how often its test cuts the power.
OPTIONS = -device auto
CUTS = 10

.PHONY: help dist image image-test bench facts screenshots clean FORCE
help:
	@sed -n '/^#/!q; s/^# //p' Makefile

# armhf gets ARMv6 code: Raspberry Pi OS calls a Pi Zero armhf too.
dist: $(BINARIES) $(DIST)/mavrest.1 $(DIST)/mavrest.copyright
	rm -f dist/*.deb dist/SHA256SUMS
	deploy/build-deb dist/mavrest-linux-armv6 armhf '$(VERSION)' dist
	deploy/build-deb dist/mavrest-linux-arm64 arm64 '$(VERSION)' dist
	deploy/build-deb dist/mavrest-linux-amd64 amd64 '$(VERSION)' dist
	cd dist && sha256sum mavrest-linux-* mavrest_*.deb >SHA256SUMS
	rm -rf dist/raspberry-pi*
	mkdir dist/raspberry-pi dist/raspberry-pi-32bit
	cp dist/mavrest_*_arm64.deb dist/raspberry-pi/mavrest.deb
	cp dist/mavrest_*_armhf.deb dist/raspberry-pi-32bit/mavrest.deb
	cp deploy/raspberry-pi/vendor-data dist/raspberry-pi/
	cp deploy/raspberry-pi/vendor-data dist/raspberry-pi-32bit/

$(DIST)/mavrest-linux-armv6: env = GOARCH=arm GOARM=6
$(DIST)/mavrest-linux-armv7: env = GOARCH=arm GOARM=7
$(DIST)/mavrest-linux-arm64: env = GOARCH=arm64
$(DIST)/mavrest-linux-amd64: env = GOARCH=amd64

# FORCE: go build decides what is up to date.
$(BINARIES): FORCE
	CGO_ENABLED=0 GOOS=linux $(env) go build $(RELEASE) \
		-ldflags '-s -w $(pages)' -o $@ .

# The packages' man page and licences.
$(DIST)/mavrest.1: FORCE
	mkdir -p $(DIST)
	go run . -help | deploy/manpage >$@

$(DIST)/mavrest.copyright: FORCE
	mkdir -p $(DIST)
	deploy/licenses >$@

image: export OPTIONS := $(OPTIONS)
image:
	image/build dist/mavrest-rpi.img

image-test: image
	go test -v -run TestTheCard -image dist/mavrest-rpi.img -cuts $(CUTS) .

bench:
	BEFORE=$(BEFORE) go test -run '^$$' -bench . .

facts:
	go test -timeout 0 -count 1 -run TestFacts -fly -autopilot '$(AUTOPILOT)' \
		-observer '$(OBSERVER)' -transmitter '$(TRANSMITTER)' $(FACTS) .

screenshots:
	.ci/page screenshots

clean:
	rm -rf dist
