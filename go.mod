module mavrest

go 1.25.0

require (
	github.com/bluenviron/gomavlib/v3 v3.3.5
	go.bug.st/serial v1.8.0
)

require golang.org/x/sys v0.43.0 // indirect
