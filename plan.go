package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

// request is a command as POST mode, takeoff, goto and land take it, read and
// checked. A nil number was not given.
type request struct {
	setMode bool // mode is wanted
	mode    Mode
	arm     *bool
	goTo    bool // mode is ModeHold, somewhere else

	lat, lon    *float64 // degrees, both or neither
	altitude    *float64 // metres above home
	altitudeMSL *float64 // metres above mean sea level
	heading     *float64 // degrees, 0 to 360
	speed       *float64 // metres per second
}

// or is a number that was given, or what stands for it.
func or(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

// vehicle is what a plan needs to know of the drone. An unknown number is NaN.
type vehicle struct {
	firmware firmware
	custom   uint32 // custom mode
	armed    bool
	landed   landedState
	failsafe bool

	at       place   // degrees, metres above home
	amsl     float64 // metres above mean sea level
	heading  float64 // degrees
	velocity motion  // NaN where it is not fresh
	homeAMSL float64 // metres

	target  *place // of the goto or the landing at a place under way, or nil
	goes    bool   // a step to the hold mode was sent and not answered: it may fly somewhere
	streams bool   // the sticks of a stick mode are ours
	away    bool   // our stream is not centred
	set     settings
	wing    bool // a QuadPlane flies on its wing
}

// motion is a velocity over ground, in metres a second.
type motion struct{ north, east, down float64 }

// settings are the autopilot's parameters that a plan rests on, or their defaults.
type settings struct {
	guidedHovers float64 // Q_GUIDED_MODE: 1 hovers in GUIDED
	cruise       float64 // m/s, WPNAV_SPEED: a goto's default speed on Copter
	pace         float64 // m/s, of the goto under way
	spedUp       bool    // a goto from here had a speed of its own, and it stands
}

// flying reports whether the drone is in the air for all that is known: armed,
// and not reported on the ground.
func (v vehicle) flying() bool { return v.armed && v.landed != onGround }

// hovers reports whether GUIDED keeps a place. A QuadPlane that hovers circles
// 75 m off in it, by default (docs/autopilots.md, "QuadPlane").
func (v vehicle) hovers(what string) error {
	if v.firmware == quadPlane && !v.wing && v.set.guidedHovers != 1 {
		return refuse(codeUnsupported, "%s: this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1", what)
	}
	return nil
}

// step is one MAVLink command. Unset numbers of a COMMAND_LONG are NaN on PX4
// and 0 on ArduPilot.
type step struct {
	cmd   common.MAV_CMD
	asInt bool             // COMMAND_INT: a place is in degE7, float32 degrees miss by a metre
	frame common.MAV_FRAME // of a COMMAND_INT
	p     [7]float32       // param1 to param7 of a COMMAND_LONG; 1 to 4 and z (7) of a COMMAND_INT
	x, y  int32            // degE7, of a COMMAND_INT

	enters  bool      // it leads to a mode
	number  uint32    // that mode's number
	stays   bool      // a DO_REPOSITION that holds
	through bool      // only the way out of a stick mode or into one: never taken back
	sticks  stickNeed // of the stream before it is sent
	wish    bool      // the plan goes on when it is refused
	undo    *step     // takes the step back when a later one is refused
}

// moves reports whether the step may move the vehicle elsewhere. A DO_SET_MODE
// that has no way back asks for the mode that it is in, and does nothing.
func (s *step) moves() bool {
	switch s.cmd {
	case common.MAV_CMD_COMPONENT_ARM_DISARM, common.MAV_CMD_DO_CHANGE_SPEED:
		return false
	case common.MAV_CMD_DO_SET_MODE:
		return s.undo != nil
	}
	return true
}

func (s *step) arms() bool { return s.cmd == common.MAV_CMD_COMPONENT_ARM_DISARM && s.p[0] == 1 }

// plan is how a request is carried out on one autopilot: the commands in
// their order, and what they mean to the machine and to the sticks.
type plan struct {
	steps    []step
	setsMode bool  // else it only arms or disarms
	order    order // commanded once every step is accepted
	arm      *bool // the armed bit that it leads to; nil: as it was

	sticks  stickPlan
	target  *place  // where it flies to; a takeoff has only the altitude
	amsl    float64 // of the target, metres above mean sea level
	facing  float64 // a heading that was given, degrees; NaN: none was
	second  *step   // of a land at a place, sent over the target
	resumes bool    // taken back, it flies on to where it flew to
	urgent  bool    // it skips the turn: land, rtl, rtgs and disarming
}

// stickPlan says what a plan means for the stick stream.
type stickPlan uint8

const (
	sticksAsTheyAre stickPlan = iota
	sticksEnter               // a stick mode: centred, then the client's
	sticksRun                 // arming in a stick mode needs them
	sticksLeave               // centred, then nobody's
)

// message is the step as it goes on the wire.
func (s *step) message(system byte, confirmation uint8) message.Message {
	if s.asInt {
		return &common.MessageCommandInt{
			TargetSystem: system, TargetComponent: autopilotID,
			Frame: s.frame, Command: s.cmd,
			Param1: s.p[0], Param2: s.p[1], Param3: s.p[2], Param4: s.p[3],
			X: s.x, Y: s.y, Z: s.p[6],
		}
	}
	return &common.MessageCommandLong{
		TargetSystem: system, TargetComponent: autopilotID,
		Command: s.cmd, Confirmation: confirmation,
		Param1: s.p[0], Param2: s.p[1], Param3: s.p[2], Param4: s.p[3],
		Param5: s.p[4], Param6: s.p[5], Param7: s.p[6],
	}
}

// place is where a plan flies to: degrees and metres above home. NaN is unknown.
type place struct{ lat, lon, altitude float64 }

// errorCode is the `code` of an error answer; api.go gives it its HTTP status.
type errorCode string

const (
	codeOutOfRange  errorCode = "out_of_range"
	codeWrongMode   errorCode = "wrong_mode"
	codeRefused     errorCode = "refused"
	codeSuperseded  errorCode = "superseded"
	codeUnsupported errorCode = "unsupported"
	codeOffline     errorCode = "offline"
	codeNoAck       errorCode = "no_ack"
	codeInterrupted errorCode = "interrupted"
	codeNotDone     errorCode = "not_done"
)

// commandError is why a command was not carried out.
type commandError struct {
	code errorCode
	text string // a sentence that a person can act on

	answered bool // by the autopilot: the fields below are set
	command  uint16
	result   uint8
	messages []statusText
}

func (e *commandError) Error() string { return e.text }

func refuse(code errorCode, format string, args ...any) error {
	return &commandError{code: code, text: fmt.Sprintf(format, args...)}
}

// defaultTakeoff is the altitude of a takeoff that names none, in metres above
// home (docs/openapi.yaml).
const defaultTakeoff = 10.0

var nan32 = float32(math.NaN())

// command is a COMMAND_LONG with param1 and on; what is not given is unset.
func (f firmware) command(cmd common.MAV_CMD, params ...float32) step {
	s := step{cmd: cmd}
	if f == px4 {
		for i := range s.p {
			s.p[i] = nan32
		}
	}
	copy(s.p[:], params)
	return s
}

// setMode is DO_SET_MODE: param1 bit 0 says that a custom mode follows.
func (f firmware) setMode(custom uint32) step {
	if f == px4 {
		return f.command(common.MAV_CMD_DO_SET_MODE, 1, float32(custom>>16&0xff), float32(custom>>24)).leadingTo(custom)
	}
	return f.command(common.MAV_CMD_DO_SET_MODE, 1, float32(custom)).leadingTo(custom)
}

// leadingTo is s, which enters the mode of this number.
func (s step) leadingTo(custom uint32) step {
	s.enters, s.number = true, custom
	return s
}

func (f firmware) armDisarm(arm bool) step {
	if arm {
		return f.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, 0)
	}
	return f.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 0, 0)
}

// undoing returns s with the way back to the custom mode that v is in.
func (v vehicle) undoing(s step) step {
	if s.cmd != common.MAV_CMD_DO_SET_MODE || s.number != v.custom {
		back := v.firmware.setMode(v.custom)
		s.undo = &back
	}
	return s
}

// plan says how the request is carried out on v, or why it can't be.
func (r request) plan(v vehicle) (plan, error) {
	if v.firmware == firmwareUnknown {
		return plan{}, refuse(codeUnsupported, "this autopilot is neither PX4 nor ArduPilot Copter or Plane: its state can be read, not commanded")
	}
	if !r.setMode {
		return r.planArm(v), nil
	}
	if r.arm != nil && !*r.arm && v.flying() {
		return plan{}, refuse(codeRefused, "arm: not while flying; the mode was not set either")
	}
	var p plan
	var err error
	switch {
	case r.mode == ModeTakeoff:
		p, err = r.planTakeoff(v)
	case r.goTo:
		p, err = r.planGoto(v)
	case r.mode == ModeLand && r.lat != nil:
		p, err = r.planLandAt(v)
	case r.mode == ModeHold:
		p, err = planHold(v)
	default:
		p, err = r.planMode(v)
	}
	if err != nil {
		return plan{}, err
	}
	p.setsMode, p.order.mode = true, r.mode
	p.order.numbers = []uint32{p.number(v)}
	p.urgent = r.mode == ModeLand || r.mode == ModeRTL || r.mode == ModeRTGS
	p.facing = or(r.heading, math.NaN())
	if r.mode.flownBySticks() {
		p.sticks = sticksEnter
		p.steps[0].sticks = sticksLed
		if now, _ := v.firmware.reported(v.custom); v.away && !now.flownBySticks() {
			p.lead(v) // centring them takes PX4 there
		}
	} else {
		p.leave(v)
	}
	if r.arm != nil && r.mode != ModeTakeoff {
		arm := v.firmware.armDisarm(*r.arm)
		if *r.arm && r.mode.flownBySticks() {
			arm.sticks = sticksLed
		}
		p.steps, p.arm = append(p.steps, arm), r.arm
	}
	return p, nil
}

// number is the autopilot's number of the mode that the plan ends in.
func (p *plan) number(v vehicle) uint32 {
	for _, s := range slices.Backward(p.steps) {
		if s.enters {
			return s.number
		}
	}
	return v.custom
}

// leave gets the sticks out of the way of a mode without sticks. On PX4 moving
// ones take such a mode back, for 1.6 s after they stood; POSCTL they can't undo,
// and the drone stops in it (docs/design.md, "Leaving on PX4").
func (p *plan) leave(v vehicle) {
	p.sticks = sticksLeave
	if v.firmware != px4 {
		return
	}
	p.steps[0].sticks = sticksStill
	if now, _ := px4.reported(v.custom); v.streams && (now == ModeManual || now == ModeAltitude) {
		p.lead(v)
	}
}

// lead leads a plan on PX4 in the air through POSCTL or, without a position,
// ALTCTL. There it stays if a later step is refused: sticks that have just moved
// would undo a way back.
func (p *plan) lead(v vehicle) {
	through := entered[px4][ModePosition]
	if math.IsNaN(v.at.lat) {
		through = entered[px4][ModeAltitude]
	}
	if v.firmware != px4 || !v.flying() || v.custom == through || p.steps[0].number == through {
		return
	}
	s, back := px4.setMode(through), px4.setMode(through)
	for i := range p.steps {
		if p.steps[i].undo != nil {
			p.steps[i].undo = &back
		}
	}
	s.through = true
	p.steps = slices.Insert(p.steps, 0, s)
}

func (r request) planArm(v vehicle) plan {
	now, _ := v.firmware.reported(v.custom)
	p := plan{arm: r.arm, steps: []step{v.firmware.armDisarm(*r.arm)}, urgent: !*r.arm}
	if *r.arm && now.flownBySticks() {
		p.sticks = sticksRun
		p.steps[0].sticks = sticksLed
	}
	return p
}

// planMode enters a mode with DO_SET_MODE, and lands here.
func (r request) planMode(v vehicle) (plan, error) {
	var p plan
	if r.mode == ModeLand {
		landing, err := v.firmware.land()
		p.steps = []step{v.undoing(landing)}
		return p, err
	}
	custom, ok := entered[v.firmware][r.mode]
	if !ok {
		return p, refuse(codeUnsupported, "mode: this vehicle has no mode for %q", r.mode)
	}
	p.steps = []step{v.undoing(v.firmware.setMode(custom))}
	return p, nil
}

// land is the command that lands here. NAV_LAND ignores a place on both
// autopilots; on Copter its ack can't be mistaken for another mode change's.
func (f firmware) land() (step, error) {
	switch custom := entered[f][ModeLand]; f {
	case px4, copter:
		return f.command(common.MAV_CMD_NAV_LAND).leadingTo(custom), nil
	case quadPlane:
		return f.setMode(custom), nil
	}
	return step{}, refuse(codeUnsupported, "land: a fixed wing lands by a mission, not by a command")
}

// A multirotor needs v²/stopping to stop; that was measured up to fastest
// (docs/autopilots.md, "PX4: hold").
const (
	stopping = 3.5  // m/s²
	fastest  = 12.0 // m/s
)

// planHold holds where the drone can stop (docs/design.md, rule 10).
func planHold(v vehicle) (plan, error) {
	var p plan
	f, hold := v.firmware, entered[v.firmware][ModeHold]
	mode := v.undoing(f.setMode(hold))
	p.steps = []step{mode}
	if !v.flying() {
		return p, nil
	}
	if err := v.hovers("hold"); err != nil {
		return p, err
	}
	stay := func(to place, amsl float64) step {
		there := v.undoing(request{}.reposition(v, to, amsl))
		there.stays = true
		p.target, p.amsl = &to, amsl
		return there
	}
	to, amsl, measured := v.stop()
	known := !math.IsNaN(to.lat) && !math.IsNaN(amsl)
	again := v.custom == hold || v.goes // the mode alone would fly on to its old target
	switch {
	case f == copter && again:
		p.steps = []step{v.undoing(f.setMode(copterBrake)), f.setMode(hold)}
	case (f == plane || f == quadPlane && v.wing) && again && !math.IsNaN(v.at.lat):
		// It circles round its old target, or the present place.
		p.steps = []step{stay(v.at, v.amsl)}
	case known && f == px4 && !v.streams && (measured || again), known && f == quadPlane && !v.wing && again:
		there := stay(to, amsl)
		p.steps = []step{there}
		if f == px4 && v.failsafe { // only DO_SET_MODE is known to end one
			p.steps = []step{mode, there}
		}
	}
	return p, nil
}

// stop is the place where the vehicle can stop, along its velocity; without a fresh
// velocity it is the present place, and NaN where that is not fresh. measured: the
// velocity is fresh, and not over what was measured.
func (v vehicle) stop() (to place, amsl float64, measured bool) {
	m := v.velocity
	speed := math.Hypot(math.Hypot(m.north, m.east), m.down)
	measured = speed <= fastest
	if math.IsNaN(speed) {
		m, speed = motion{}, 0
	}
	way := func(component float64) float64 { return component * speed / stopping }
	to.lat, to.lon = moved(v.at.lat, v.at.lon, way(m.north), way(m.east))
	to.altitude = v.at.altitude - way(m.down)
	return to, v.amsl - way(m.down), measured
}

func (r request) planTakeoff(v vehicle) (plan, error) {
	f := v.firmware
	altitude := or(r.altitude, defaultTakeoff)
	armed := true
	p := plan{arm: &armed, target: &place{math.NaN(), math.NaN(), altitude}, amsl: v.homeAMSL + altitude}
	if f == px4 {
		amsl, err := v.takeoffAMSL(altitude)
		if err != nil {
			return p, err
		}
		// Never 0 for latitude and longitude: PX4 then arms and stays.
		climb := f.command(common.MAV_CMD_NAV_TAKEOFF).leadingTo(entered[px4][ModeTakeoff])
		climb.p[6] = float32(amsl)
		p.steps = []step{v.undoing(climb)}
		p.amsl = amsl
		p.order.end, p.order.endAMSL = entered[px4][ModeHold], amsl-max(altitude/10, min(2, max(altitude/2, 0.9)))
	} else {
		if v.flying() && v.landed != 0 {
			return p, refuse(codeRefused, "takeoff: already flying; use goto to climb")
		}
		if f == plane {
			p.target = nil
			if r.altitude != nil {
				return p, refuse(codeUnsupported, "altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out")
			}
		}
		p.steps = []step{v.undoing(f.setMode(entered[f][ModeTakeoff]))}
	}
	if !v.armed {
		arm, disarm := f.armDisarm(true), f.armDisarm(false)
		arm.undo = &disarm
		p.steps = append(p.steps, arm)
	}
	if f == copter || f == quadPlane { // metres above home
		p.steps = append(p.steps, f.command(common.MAV_CMD_NAV_TAKEOFF, 0, 0, 0, 0, 0, 0, float32(altitude)))
	}
	return p, nil
}

// takeoffAMSL is where a PX4 takeoff ends: it takes metres above mean sea level
// whatever the frame says, and below the present height it sits armed.
func (v vehicle) takeoffAMSL(altitude float64) (float64, error) {
	home := v.homeAMSL
	if math.IsNaN(home) && !v.flying() {
		home = v.amsl // it becomes home when it arms
	}
	amsl := home + altitude
	if math.IsNaN(amsl) {
		return 0, refuse(codeRefused, "takeoff: the autopilot has no home position yet; wait for its GPS")
	}
	if amsl <= v.amsl {
		return 0, refuse(codeRefused, "altitude: the vehicle is already %.1f m above home", v.amsl-home)
	}
	return amsl, nil
}

// planGoto flies to a place. Both autopilots acknowledge a goto on the ground
// and drop it, so the answer is ours.
func (r request) planGoto(v vehicle) (plan, error) {
	var p plan
	if !v.flying() {
		return p, refuse(codeRefused, "not flying: take off first")
	}
	if v.firmware == plane && r.heading != nil {
		return p, refuse(codeUnsupported, "heading: a fixed wing can't keep one at a place; leave it out")
	}
	if err := v.hovers("goto"); err != nil {
		return p, err
	}
	// Keeping the heading is told too: how a goto turns is a setting of the autopilot.
	keep := r.goTo && r.heading == nil && !math.IsNaN(v.heading) && (v.firmware == px4 || v.firmware == copter)
	if keep {
		r.heading = &v.heading
	}
	to, amsl, err := r.destination(v)
	if err != nil {
		return p, err
	}
	hold := entered[v.firmware][ModeHold]
	if v.firmware == px4 && v.failsafe { // only DO_SET_MODE is known to end one
		p.steps = append(p.steps, v.undoing(v.firmware.setMode(hold)))
	}
	there := v.undoing(r.reposition(v, to, amsl))
	if v.firmware.ardupilot() && v.custom == hold && !math.IsNaN(v.at.lat) {
		// To where it flies to, or here: the mode alone would leave the new target standing.
		back := request{}.reposition(v, *cmp.Or(v.target, &v.at), v.amsl)
		there.undo, p.resumes = &back, v.target != nil
	}
	p.steps = append(p.steps, there)
	if v.firmware.ardupilot() {
		p.steps = append(p.steps, r.adjust(v, keep)...)
	}
	p.target, p.amsl = &to, amsl
	return p, nil
}

// adjust is what ArduPilot's DO_REPOSITION ignores, told after its ack: before it
// the speed is lost. A speed stays for every later goto, so one that names none
// restores the default (docs/autopilots.md, "ArduPilot: goto").
func (r request) adjust(v vehicle, keep bool) (steps []step) {
	f := v.firmware
	fly := func(speed float64) step {
		return f.command(common.MAV_CMD_DO_CHANGE_SPEED, 1, float32(speed), -1)
	}
	switch {
	case r.speed != nil:
		steps = append(steps, fly(*r.speed))
	case f == copter && v.custom == entered[f][ModeHold] && v.set.spedUp:
		s := fly(v.set.cruise)
		s.wish = true
		steps = append(steps, s)
	}
	if n := len(steps); n > 0 && f == copter && v.target != nil { // it would stand on the way that is resumed
		back := fly(v.set.pace)
		steps[n-1].undo = &back
	}
	if r.heading != nil {
		s := f.command(common.MAV_CMD_CONDITION_YAW, float32(*r.heading))
		s.wish = keep
		steps = append(steps, s)
	}
	return steps
}

// planLandAt flies to the place at the present height; the landing itself
// follows over it.
func (r request) planLandAt(v vehicle) (plan, error) {
	landing, err := v.firmware.land()
	if err != nil {
		return plan{}, err
	}
	if err := v.hovers("land"); err != nil {
		return plan{}, err
	}
	p, err := request{lat: r.lat, lon: r.lon, mode: ModeLand}.planGoto(v)
	p.second = &landing
	p.order.transit = true
	return p, err
}

// destination completes a goto with what it keeps: the place, and the height
// above home and above mean sea level. A height is only told in one of the two
// where home is unknown.
func (r request) destination(v vehicle) (to place, amsl float64, err error) {
	to, amsl = v.at, v.amsl
	if v.firmware != plane && !v.wing { // to keep the place is to stop
		stop, _, _ := v.stop()
		to.lat, to.lon = stop.lat, stop.lon
	}
	to.lat, to.lon = or(r.lat, to.lat), or(r.lon, to.lon)
	switch {
	case r.altitude != nil:
		to.altitude, amsl = *r.altitude, v.homeAMSL+*r.altitude
	case r.altitudeMSL != nil:
		to.altitude, amsl = *r.altitudeMSL-v.homeAMSL, *r.altitudeMSL
	}
	switch {
	case math.IsNaN(to.lat):
		err = refuse(codeRefused, "the autopilot has no position yet: give lat and lon, or wait for its GPS")
	case v.firmware == px4 && math.IsNaN(amsl):
		err = refuse(codeRefused, "altitude: the autopilot has no home position yet; give altitude_msl, or wait for its GPS")
	case v.firmware != px4 && math.IsNaN(to.altitude) && r.altitudeMSL == nil:
		err = refuse(codeRefused, "altitude: the autopilot's own height is not known yet; give altitude or altitude_msl")
	}
	return to, amsl, err
}

// reposition is DO_REPOSITION with param2 = 1, which enters the hold mode too.
// PX4 takes z above mean sea level whatever the frame says, and yaw in radians;
// ArduPilot takes the height above home and ignores yaw and speed. "Keep" is
// told as the present place: ArduPilot denies INT32_MAX.
func (r request) reposition(v vehicle, to place, amsl float64) step {
	s := step{
		cmd: common.MAV_CMD_DO_REPOSITION, asInt: true,
		enters: true, number: entered[v.firmware][ModeHold],
		frame: common.MAV_FRAME_GLOBAL,
		x:     degE7(to.lat), y: degE7(to.lon),
		p: [7]float32{-1, 1, 0, 0, 0, 0, float32(amsl)},
	}
	if v.firmware != px4 {
		if r.altitudeMSL == nil {
			s.frame, s.p[6] = common.MAV_FRAME_GLOBAL_RELATIVE_ALT, float32(to.altitude)
		}
		return s
	}
	s.p[0] = float32(or(r.speed, -1))
	s.p[3] = float32(math.Remainder(or(r.heading, math.NaN()), 360) * math.Pi / 180)
	return s
}

// degE7 is an angle in 1e-7 degrees, the integer that MAVLink carries places in.
func degE7(deg float64) int32 { return int32(math.Round(deg * 1e7)) }
