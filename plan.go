package main

import (
	"fmt"
	"math"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
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

// distance is the way over ground between two places a few kilometres apart,
// in metres.
func distance(lat1, lon1, lat2, lon2 float64) float64 {
	const metresPerDegree = 6371000 * math.Pi / 180
	north := (lat2 - lat1) * metresPerDegree
	east := math.Remainder(lon2-lon1, 360) * metresPerDegree * math.Cos(lat1*math.Pi/180)
	return math.Hypot(north, east)
}

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

// vehicle is what a plan needs to know of the drone. An unknown number is NaN.
type vehicle struct {
	firmware firmware
	custom   uint32 // custom mode
	armed    bool
	landed   landedState
	failsafe bool

	lat, lon float64 // degrees
	amsl     float64 // metres above mean sea level
	relative float64 // metres above home
	heading  float64 // degrees
	homeAMSL float64 // metres

	target *place // of the goto under way, or nil
}

// heldPlace is where a hold that is under way leads: to its target, or nowhere.
func (v vehicle) heldPlace() place {
	if v.target != nil {
		return *v.target
	}
	return place{v.lat, v.lon, v.relative}
}

// landedState is EXTENDED_SYS_STATE's MAV_LANDED_STATE.
type landedState uint8

// flying reports whether the drone is in the air for all that is known: armed,
// and not reported on the ground.
func (v vehicle) flying() bool {
	return v.armed && v.landed != landedState(common.MAV_LANDED_STATE_ON_GROUND)
}

// step is one MAVLink command. Unset numbers of a COMMAND_LONG are NaN on PX4
// and 0 on ArduPilot.
type step struct {
	cmd   common.MAV_CMD
	asInt bool             // COMMAND_INT: a place is in degE7, float32 degrees miss by a metre
	frame common.MAV_FRAME // of a COMMAND_INT
	p     [7]float32       // param1 to param7 of a COMMAND_LONG; 1 to 4 and z (7) of a COMMAND_INT
	x, y  int32            // degE7, of a COMMAND_INT

	wish bool  // the plan goes on when it is refused
	undo *step // takes the step back when a later one is refused
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

// custom is the custom mode that a DO_SET_MODE asks for.
func (s *step) custom(f firmware) uint32 {
	if f == px4 {
		return px4Custom(uint32(s.p[1]), uint32(s.p[2]))
	}
	return uint32(s.p[1])
}

// plan is how a request is carried out on one autopilot: the commands in
// their order, and what they mean to the machine and to the sticks.
type plan struct {
	steps    []step
	explains []Mode // what the steps may show while they wait for acks

	setsMode bool // else it only arms or disarms
	mode     Mode // commanded once every step is accepted
	arm      bool // of a plan that only arms or disarms

	sticks stickPlan
	target *place // where it flies to
	landed *step  // the second leg of a land at a place, sent over the target
}

// stickPlan says what a plan needs of the stick stream before its first step.
type stickPlan uint8

const (
	sticksAsTheyAre stickPlan = iota
	sticksEnter               // centred and running for a while: a stick mode is asked for
	sticksRun                 // running for a while: arming in a stick mode needs them
	sticksLeave               // centred, and on PX4 standing still, then parked
)

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
// home (API.md).
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
		return f.command(common.MAV_CMD_DO_SET_MODE, 1, float32(custom>>16&0xff), float32(custom>>24))
	}
	return f.command(common.MAV_CMD_DO_SET_MODE, 1, float32(custom))
}

func (f firmware) armDisarm(arm bool) step {
	if arm {
		return f.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 1, 0)
	}
	return f.command(common.MAV_CMD_COMPONENT_ARM_DISARM, 0, 0)
}

// undoing returns s with the way back to the custom mode that v is in.
func (v vehicle) undoing(s step) step {
	if s.cmd != common.MAV_CMD_DO_SET_MODE || s.custom(v.firmware) != v.custom {
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
	default:
		p, err = r.planMode(v)
	}
	if err != nil {
		return plan{}, err
	}
	p.setsMode, p.mode = true, r.mode
	p.sticks = sticksLeave
	if r.mode.flownBySticks() {
		p.sticks = sticksEnter
		if v.firmware == px4 { // the stream's first frames may count as a take-over
			p.explains = append(p.explains, ModePosition)
		}
	}
	if r.arm != nil && r.mode != ModeTakeoff {
		p.steps = append(p.steps, v.firmware.armDisarm(*r.arm))
	}
	now, _ := v.firmware.reported(v.custom)
	p.explains = append(p.explains, r.mode, now)
	return p, nil
}

func (r request) planArm(v vehicle) plan {
	now, _ := v.firmware.reported(v.custom)
	p := plan{arm: *r.arm, explains: []Mode{now}, steps: []step{v.firmware.armDisarm(*r.arm)}}
	if *r.arm && now.flownBySticks() {
		p.sticks = sticksRun
	}
	return p
}

// planMode enters a mode with DO_SET_MODE, and lands here.
func (r request) planMode(v vehicle) (plan, error) {
	var p plan
	landing, err := v.firmware.land()
	custom, ok := entered[v.firmware][r.mode]
	switch {
	case r.mode == ModeLand:
		if err != nil {
			return p, err
		}
		p.steps = []step{v.undoing(landing)}
		return p, nil
	case !ok:
		return p, refuse(codeUnsupported, "mode: this vehicle has no mode for %q", r.mode)
	}
	p.steps = []step{v.undoing(v.firmware.setMode(custom))}
	if r.mode == ModeRTGS {
		p.explains = []Mode{ModeRTL}
	}
	// Asking for the mode it is in leaves the target of a goto standing on both
	// autopilots; only a new target holds here.
	if r.mode == ModeHold && v.custom == custom && v.flying() {
		if math.IsNaN(v.lat) {
			return p, refuse(codeRefused, "hold: the autopilot sends no position to hold; land and rtl need none")
		}
		p.steps = append(p.steps, r.reposition(v, place{v.lat, v.lon, v.relative}, v.amsl))
	}
	return p, nil
}

// land is the command that lands here. NAV_LAND ignores a place on both
// autopilots; on Copter its ack can't be mistaken for another mode change's.
func (f firmware) land() (step, error) {
	switch f {
	case px4:
		return f.command(common.MAV_CMD_NAV_LAND), nil
	case copter:
		return f.command(common.MAV_CMD_NAV_LAND, 0, 0, 0, 0, 0, 0, 0), nil
	case quadPlane:
		return f.setMode(entered[f][ModeLand]), nil
	}
	return step{}, refuse(codeUnsupported, "land: a fixed wing lands by a mission, not by a command")
}

func (r request) planTakeoff(v vehicle) (plan, error) {
	f := v.firmware
	altitude := defaultTakeoff
	if r.altitude != nil {
		altitude = *r.altitude
	}
	var p plan
	if f == px4 {
		amsl, err := v.takeoffAMSL(altitude)
		if err != nil {
			return p, err
		}
		// Never 0 for latitude and longitude: PX4 then arms and stays.
		climb := f.command(common.MAV_CMD_NAV_TAKEOFF)
		climb.p[6] = float32(amsl)
		p.steps = []step{v.undoing(climb)}
		p.explains = []Mode{ModeHold}
	} else {
		if v.flying() && v.landed != 0 {
			return p, refuse(codeRefused, "takeoff: already flying; use goto to climb")
		}
		if f == plane && r.altitude != nil {
			return p, refuse(codeUnsupported, "altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out")
		}
		p.steps = []step{v.undoing(f.setMode(entered[f][ModeTakeoff]))}
		p.explains = []Mode{ModeHold}
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
	if v.firmware == px4 {
		if v.failsafe { // only DO_SET_MODE is known to end one
			p.steps = append(p.steps, v.undoing(v.firmware.setMode(hold)))
		}
	} else if r.speed != nil {
		// The speed is GUIDED's own: it must be there before it is told.
		p.steps = append(p.steps,
			v.undoing(v.firmware.setMode(hold)),
			v.firmware.command(common.MAV_CMD_DO_CHANGE_SPEED, 1, float32(*r.speed), -1))
	}
	there := v.undoing(r.reposition(v, to, amsl))
	if v.firmware.ardupilot() && v.custom == hold && !math.IsNaN(v.lat) {
		// The mode alone would leave the new target standing.
		back := request{}.reposition(v, v.heldPlace(), v.amsl)
		there.undo = &back
	}
	p.steps = append(p.steps, there)
	if v.firmware.ardupilot() && r.heading != nil {
		turn := v.firmware.command(common.MAV_CMD_CONDITION_YAW, float32(*r.heading))
		turn.wish = keep
		p.steps = append(p.steps, turn)
	}
	p.target = &to
	return p, nil
}

// planLandAt flies to the place at the present height; the landing itself
// follows over it.
func (r request) planLandAt(v vehicle) (plan, error) {
	landing, err := v.firmware.land()
	if err != nil {
		return plan{}, err
	}
	p, err := request{lat: r.lat, lon: r.lon, mode: ModeLand}.planGoto(v)
	p.landed = &landing
	p.explains = append(p.explains, ModeHold)
	return p, err
}

// destination completes a goto with what it keeps: the place, and the height
// above home and above mean sea level. A height is only told in one of the two
// where home is unknown.
func (r request) destination(v vehicle) (to place, amsl float64, err error) {
	to, amsl = place{v.lat, v.lon, v.relative}, v.amsl
	if r.lat != nil {
		to.lat, to.lon = *r.lat, *r.lon
	}
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
	s.p[3] = nan32
	if r.speed != nil {
		s.p[0] = float32(*r.speed)
	}
	if r.heading != nil {
		s.p[3] = float32(math.Remainder(*r.heading, 360) * math.Pi / 180)
	}
	return s
}

// degE7 is an angle in 1e-7 degrees, the integer that MAVLink carries places in.
func degE7(deg float64) int32 { return int32(math.Round(deg * 1e7)) }
