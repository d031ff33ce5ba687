package main

import (
	"cmp"
	"fmt"
	"slices"
)

// ourIDs are who we are on the line: a part of the vehicle that the link has.
// The link guards them.
type ourIDs struct {
	only    byte // only this vehicle's system id; 0 takes the first
	vehicle byte // its system id; 0 before its first heartbeat
	us      byte // our component id
	station byte // the system that the sticks came from: ArduPilot took them for its ground station's heartbeats
	echoes  echoes
}

// system is the vehicle's system id: we are a part of it.
func (i *ourIDs) system() byte { return cmp.Or(i.vehicle, i.only, 1) }

// sender is from whom a message goes out; zero ids are ours.
func (i *ourIDs) sender(system, component byte) (byte, byte) {
	return cmp.Or(system, i.system()), cmp.Or(component, i.us)
}

// addressed reports whether an ack is for us. An autopilot that does not fill the
// target in says 0.
func (i *ourIDs) addressed(system, component byte) bool {
	return (system == 0 || system == i.system()) && (component == 0 || component == i.us)
}

// find takes the vehicle whose heartbeat came, if there is none yet; ours reports
// whether it is the one that the link has, found that it is new.
func (i *ourIDs) find(system byte) (ours, found bool) {
	if i.vehicle == 0 && (i.only == 0 || i.only == system) {
		i.vehicle, found = system, true
	}
	return i.vehicle == system, found
}

// meets looks at a frame with our own ids that we did not send: somebody else has
// them, and his acks would be ours. It steps aside, and says so. A frame whose
// checksum nobody can check may be noise.
func (i *ourIDs) meets(f rawFrame) (notice string) {
	if f.known == nil || f.system != i.system() || f.component != i.us || i.us == lastComponentID || i.echoes.has(f.echo()) {
		return ""
	}
	was := i.us
	i.us--
	return fmt.Sprintf("another program uses our MAVLink ids %d/%d: going on as component %d", f.system, was, i.us)
}

// echoes are the last frames that we sent: a router or a radio may send them back.
type echoes struct {
	last [64]echo
	n    int
}

func (e *echoes) add(x echo) {
	e.last[e.n%len(e.last)] = x
	e.n++
}

func (e *echoes) has(x echo) bool {
	return slices.Contains(e.last[:min(e.n, len(e.last))], x)
}
