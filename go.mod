module mavrest

go 1.25.0

require (
	github.com/bluenviron/gomavlib/v3 v3.3.5
	go.bug.st/serial v1.8.0
)

require (
	github.com/pion/logging v0.2.2 // indirect
	github.com/pion/transport/v2 v2.2.10 // indirect
	golang.org/x/net v0.48.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
)
