package main

import (
	"cmp"
	"math"
	"net/netip"
	"time"
)

// stickInput is a POST input: roll, pitch and yaw from −1 to 1, throttle from 0 to 1 or nil.
type stickInput struct {
	roll, pitch, yaw float64
	throttle         *float64

	// timeout is how long they count, from when they came.
	timeout time.Duration

	// from: the client
	from netip.Addr

	// came is when its last bytes came, and due when they could first be read, as of a request.
	came, due time.Time
}

// expires is when they no longer count.
func (in stickInput) expires() time.Time { return in.came.Add(in.timeout) }

// input takes the client's sticks, which go out when the change ends. It returns the mode that they act in.
func (d *drone) input(in stickInput) (mode Mode, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = bug(d.log, v, true)
		}
	}()
	d.changeMayWait(func(w waiter) {
		d.awaitTurn(w, in.came, in.due)

		// While a number is kept no stick moves.
		w.wait(time.Now().Add(urgentKept), func() bool { return !d.machine.reports.keeps() || !d.online })
		mode, err = d.takeInput(in)
		err = d.withActed(err, false)
	})
	return mode, err
}

// takeInput makes a client's sticks those that are sent, and returns the mode that they act in.
func (d *drone) takeInput(in stickInput) (Mode, error) {
	v := d.situation(time.Now())
	if err := cmp.Or(d.able(), v.readOnly(), v.doubt); err != nil {
		return 0, err
	}
	if err := d.inputRefused(in, v); err != nil {
		return 0, err
	}
	d.sticks.clientMoves(v, in.axes(ownThrottle(v.view)), in.from, in.expires())
	d.sticks.client.came = in.came
	d.cmd.clientActed = true

	// The client is back: what waits to be commanded in its place is not any more.
	d.cmd.endUnasked()
	return v.mode, nil
}

// axes are the sticks in MANUAL_CONTROL's units; z is the throttle if none was given.
func (in stickInput) axes(z int16) axes {
	scaled := func(v float64) int16 { return int16(math.Round(v * 1000)) }
	if in.throttle != nil {
		z = scaled(*in.throttle)
	}
	return axes{x: scaled(in.pitch), y: scaled(in.roll), r: scaled(in.yaw), z: z}
}

// inputRefused is why a client's sticks are not taken, of a vehicle that can be commanded: the first row that is so
// (docs/design.md, "When POST input is refused"); nil: none is.
func (d *drone) inputRefused(in stickInput, v situation) error {
	entering, leadsTo := false, ModeOther
	if t := d.cmd.current(); t != nil && t.setsMode() {
		entering, leadsTo = true, t.request.leadsTo()
	}
	denied := d.sticks.src.denied(v.view)
	flies := v.mode.flownBySticks()
	othersMode := d.sticks.taken && (flies || d.machine.commanded == nil)
	held := d.sticks.held(v)
	awaitsReceiver := !d.sticks.src.known && d.sticks.phase == stickOff && v.now.Before(d.receiverDeadline())
	lacksThrottle := in.throttle == nil && v.mode == ModeManual && !v.drives()
	modes := whenSaid(func() string { return v.stickModes() })
	newest := later(d.cmd.newest, d.sticks.client.came)

	for _, row := range []struct {
		when   bool
		code   errorCode
		answer string
		about  []any
	}{
		{entering, codeWrongMode, "input: a command to enter %s is under way", []any{leadsTo}},

		// It may be a pilot's switch.
		{d.machine.reports.keeps(), codeWrongMode, "input: the vehicle's mode is changing", nil},

		// Setting a mode would not help.
		{denied.given(), codeWrongMode, "input: %s", []any{denied}},

		// Where a mode without sticks was set here since, the next row says it.
		{othersMode, codeWrongMode, "input: a pilot, a failsafe or another program took the drone, which is in mode " +
			"%s; set %s here to take the sticks", []any{v.mode, modes}},
		{!flies, codeWrongMode, "input: the drone is in mode %s; set %s first", []any{v.mode, modes}},
		{held.IsValid() && held != in.from, codeWrongMode, "another client (%s) has the sticks; set the mode to " +
			"take them", []any{held}},
		{awaitsReceiver, codeWrongMode, "input: it is not known yet whether a receiver has the sticks; try again in " +
			"a few seconds", nil},
		{v.stickKind() == kindUnknown, codeWrongMode, "input: this VTOL does not report now whether it hovers or is " +
			"on its wing, where sticks mean something else", nil},
		{d.sticks.otherKind(v), codeWrongMode, "input: the vehicle has gone over to %s, where sticks mean something " +
			"else; set the mode again to take them", []any{kindNames[v.stickKind()]}},
		{lacksThrottle, codeOutOfRange, "throttle: it must be given in manual mode, where it is thrust: 0 to 1", nil},
		{d.cmd.disarmedAt.After(in.came), codeInterrupted, "input: the vehicle was disarmed; nothing was sent", nil},
		{newest.After(in.came.Add(kernelTick)), codeSuperseded, "input: newer sticks or a newer command took " +
			"their place", nil},
		{!v.now.Before(in.expires()), codeRefused, "timeout: the sticks expired before they could be sent; send new " +
			"ones", nil},
	} {
		if row.when {
			return refuse(row.code, row.answer, row.about...)
		}
	}
	return nil
}

// whenSaid is a part of a sentence that is made only where it is said.
type whenSaid func() string

func (s whenSaid) String() string { return s() }

// receiverDeadline is until when a task waits for the receiver's state, and input is refused without it. SYS_STATUS
// brings it, twice a second.
func (d *drone) receiverDeadline() time.Time {
	return d.sticks.src.validFrom.Add(showWithin + d.cmd.acks.trip)
}

// flyer is the client who flies by sticks, even if it is silent for a moment; invalid if none does.
func (d *drone) flyer() (client netip.Addr) {
	d.locked(func() {
		if d.machine.mode.flownBySticks() && !d.sticks.taken {
			client = d.sticks.client.from
		}
	})
	return client
}
