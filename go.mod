module mavrest

go 1.25.0

require (
	github.com/bluenviron/gomavlib/v3 v3.3.5
	go.bug.st/serial v1.8.0
)

require (
	github.com/apapsch/go-jsonmerge/v2 v2.0.0 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/oapi-codegen/runtime v1.8.0 // indirect
	github.com/pion/logging v0.2.2 // indirect
	github.com/pion/transport/v2 v2.2.10 // indirect
	golang.org/x/net v0.48.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
)
