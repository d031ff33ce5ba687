package main

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

const simPrearm = common.MAV_CMD_RUN_PREARM_CHECKS

// simBoots restarts a PX4 many times. It checks how many boots have an oddity.
func simBoots(t *testing.T, boots, least, most int, odd func(b *simBoard) bool) {
	t.Helper()
	simFlight(t, simPX4, nil, func(b *simBoard) {
		n := 0
		for range boots {
			b.reboot(false)
			n += b2i(odd(b))
		}
		if n < least || n > most {
			t.Errorf("%d of %d boots, want %d to %d", n, boots, least, most)
		}
	})
}

// tryArming sends an arming and returns the result.
func (b *simBoard) tryArming() common.MAV_RESULT {
	return b.exchange(simArm, factLong(simSystem, simArm, 1))[0]
}

// PX4's planes, VTOLs and rovers, as docs/autopilots.md describes them ("PX4: on a wing", "PX4: on wheels").

var (
	simPX4Plane = simPX4Kind(common.MAV_TYPE_FIXED_WING, common.MAV_VTOL_STATE_UNDEFINED)

	// simPX4VTOL hovers, or flies on its wing.
	simPX4VTOL = simPX4Kind(common.MAV_TYPE_VTOL_FIXEDROTOR, common.MAV_VTOL_STATE_MC)

	simPX4Rover = simPX4Kind(common.MAV_TYPE_GROUND_ROVER, common.MAV_VTOL_STATE_UNDEFINED)
)

// simPX4Kind is a PX4 that is no multicopter.
func simPX4Kind(typ common.MAV_TYPE, vtol common.MAV_VTOL_STATE) *simVehicle {
	v := *simPX4
	v.typ = typ
	v.defaults = maps.Clone(v.defaults)
	v.defaults["NAV_LOITER_RAD"] = simPX4Circle
	v.defaults["RTL_LOITER_RAD"] = simPX4Circle
	v.defaults["NAV_FORCE_VT"] = 1
	v.equip = func(s *simulator) (simAutopilot, simFlier) {
		s.vtol = vtol
		b := &simPX4KindBrain{simPX4Brain: simPX4Brain{simulator: s}}
		return b, b
	}
	return &v
}

const (
	simPX4Circle = 80.0 // m, the radius
	simPX4Glide  = 11.0 // m/s
	simPX4Lift   = 8.0  // m/s; a slower plane rolls on the ground
	simPX4Drive  = 3.3  // m/s, full reverse
	simPX4Roll   = 0.41 // m/s²: without its motor a rover rolls on, 11 m from 3 m/s
	simPX4Change = 3 * time.Second
)

// simPX4KindBrain is a PX4 that is no multicopter. In hover a VTOL flies as one.
type simPX4KindBrain struct {
	simPX4Brain
	changes time.Time // when a VTOL's transition began
}

func (b *simPX4KindBrain) start() {
	b.simPX4Brain.start()
	b.changes = time.Time{}
	if b.typ == common.MAV_TYPE_VTOL_FIXEDROTOR && !b.airborne {
		b.vtol = common.MAV_VTOL_STATE_MC
	}
}

func (b *simPX4KindBrain) winged() bool {
	return b.typ == common.MAV_TYPE_FIXED_WING || b.vtol == common.MAV_VTOL_STATE_FW ||
		b.vtol == common.MAV_VTOL_STATE_TRANSITION_TO_FW
}

func (b *simPX4KindBrain) drives() bool { return b.typ == common.MAV_TYPE_GROUND_ROVER }

func (b *simPX4KindBrain) command(c simCommand) {
	switch {
	case c.id == common.MAV_CMD_DO_VTOL_TRANSITION:
		b.ack(c, b.transition(common.MAV_VTOL_STATE(c.p[0])))
	case c.id == common.MAV_CMD_NAV_TAKEOFF && b.drives(): // it has no meaning
		b.ack(c, common.MAV_RESULT_ACCEPTED)
		b.follow(simPX4Takeoff, 0, func() { b.enter(simPX4Takeoff) })
		b.after(500*time.Millisecond, func() { b.enter(simPX4Loiter) })
	case c.id == common.MAV_CMD_COMPONENT_ARM_DISARM && c.p[0] == 0 && b.drives():
		b.airborne = false // it disarms when it is told to
		b.simPX4Brain.command(c)
	default:
		b.simPX4Brain.command(c)
	}
}

// roll lets a rover roll on, whose motor is off.
func (b *simPX4KindBrain) roll(dt float64) {
	b.airborne = false
	q := &b.quad
	was := math.Hypot(q.vn, q.ve)
	now := max(0, was-simPX4Roll*dt)
	*q = simQuad{north: q.north, east: q.east, heading: q.heading, vn: q.vn * now / max(was, 1e-9),
		ve: q.ve * now / max(was, 1e-9)}
	q.north, q.east = q.north+q.vn*dt, q.east+q.ve*dt
}

// transition is DO_VTOL_TRANSITION.
func (b *simPX4KindBrain) transition(to common.MAV_VTOL_STATE) common.MAV_RESULT {
	switch {
	case b.typ != common.MAV_TYPE_VTOL_FIXEDROTOR, to != common.MAV_VTOL_STATE_FW && to != common.MAV_VTOL_STATE_MC:
		return common.MAV_RESULT_DENIED
	case !b.canFly(), b.mode == simPX4Takeoff, b.mode == simPX4Land:
		return common.MAV_RESULT_TEMPORARILY_REJECTED
	}
	b.after(100*time.Millisecond, func() { b.goOver(to) })
	return common.MAV_RESULT_ACCEPTED
}

// goOver begins a VTOL's transition.
func (b *simPX4KindBrain) goOver(to common.MAV_VTOL_STATE) {
	b.changes = time.Now()
	b.vtol = common.MAV_VTOL_STATE_TRANSITION_TO_MC
	if to == common.MAV_VTOL_STATE_FW {
		b.vtol = common.MAV_VTOL_STATE_TRANSITION_TO_FW
	}
}

func (b *simPX4KindBrain) step() {
	b.simPX4Brain.step()
	over := time.Since(b.changes) >= simPX4Change
	lands := b.mode == simPX4Land && b.params["NAV_FORCE_VT"] != 0 || b.mode == simPX4RTL &&
		math.Hypot(b.quad.north-b.home.north, b.quad.east-b.home.east) < simPX4Circle
	switch {
	case b.vtol == common.MAV_VTOL_STATE_TRANSITION_TO_FW && over:
		b.vtol = common.MAV_VTOL_STATE_FW
	case b.vtol == common.MAV_VTOL_STATE_TRANSITION_TO_MC && (over || !b.airborne):
		b.vtol = common.MAV_VTOL_STATE_MC
	case b.vtol == common.MAV_VTOL_STATE_FW && lands: // it goes over by itself
		b.goOver(common.MAV_VTOL_STATE_MC)
		b.stay()
	}
}

// disarms reports whether it disarms by itself now. A plane that is armed on the ground stays armed, and so does
// a rover that stands, and a VTOL that has landed on its wing.
func (b *simPX4KindBrain) disarms(now time.Time) bool {
	switch {
	case b.winged() && b.typ == common.MAV_TYPE_VTOL_FIXEDROTOR:
		return false
	case b.winged() || b.drives():
		return b.landedAt.After(b.armedAt) && now.After(b.landedAt.Add(2*time.Second))
	}
	return b.simPX4Brain.disarms(now)
}

func (b *simPX4KindBrain) wanted(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	switch {
	case b.drives():
		return b.drive(now, dt)
	case !b.winged() || !b.armed:
		return b.simPX4Brain.wanted(now, dt)
	}
	if !b.airborne {
		taxis := b.climbing || b.row(b.mode).flying == simCourse || b.row(b.mode).sticks() && b.stick(2) > 0
		if !taxis || now.Before(b.armedAt.Add(1500*time.Millisecond)) {
			return 0, 0, 0, 0
		}
		b.airborne = true
	}
	if b.mode != simPX4Land {
		b.quad.up = max(b.quad.up, 0.1) // it calls itself in the air while it rolls
	}
	return b.glide(dt)
}

// glide is the flight on the wing. It never stands still.
func (b *simPX4KindBrain) glide(dt float64) (vn, ve, vu, turn float64) {
	q, t := &b.quad, b.target
	x, y, _, _ := b.axes()
	speed := min(simPX4Glide, math.Hypot(q.vn, q.ve)+3*dt)
	switch flying := b.row(b.mode).flying; {
	case b.climbing:
		turn, vu = 0, min(2, b.climbTo-q.up+1)
	case flying == simCourse:
	case flying >= simVelocity: // forward is down
		turn, vu = y*0.6, -2.7*x
	case flying == simReturn:
		t = b.returning()
		turn, vu = b.round(t, b.params["RTL_LOITER_RAD"]), max(-2, min(2, t.up-q.up))
	case flying == simDescend:
		turn, vu = b.round(t, b.params["NAV_LOITER_RAD"]), -0.65
	default:
		turn, vu = b.round(t, b.params["NAV_LOITER_RAD"]), max(-2, min(2, t.up-q.up))
	}
	if q.up <= 0.1 && speed < simPX4Lift {
		vu = 0
	}
	sin, cos := math.Sincos(q.heading + turn*dt)
	return cos * speed, sin * speed, vu, turn
}

// round is the turn rate on, or towards, a circle round a place.
func (b *simPX4KindBrain) round(t simTarget, radius float64) float64 {
	q := &b.quad
	n, e := q.north-t.north, q.east-t.east
	course := math.Atan2(e, n) + math.Pi/2 + math.Atan((math.Hypot(n, e)-radius)/40)
	turn := math.Hypot(q.vn, q.ve)/radius + 2*math.Remainder(course-q.heading, 2*math.Pi)
	return max(-0.6, min(0.6, turn))
}

// drive moves a rover. It calls itself in the air while it is armed.
func (b *simPX4KindBrain) drive(now time.Time, dt float64) (vn, ve, vu, turn float64) {
	if !b.armed {
		b.roll(dt)
		return 0, 0, 0, 0
	}
	q, t, row := &b.quad, b.target, b.row(b.mode)
	if row.flying == simReturn {
		t = b.returning()
	}
	arrived := math.Hypot(t.north-q.north, t.east-q.east) < 0.5
	if row.flying == simDescend || row.flying == simReturn && arrived {
		if !b.landedAt.After(b.armedAt) {
			b.landedAt = now
		}
		b.roll(dt)
		return 0, 0, 0, 0
	}
	b.airborne, q.up = true, 0.1
	_, y, z, _ := b.axes()
	speed := (z - 0.5) * 2 * simPX4Drive
	if row.sticks() && row.custom != simPX4Altctl {
		sin, cos := math.Sincos(q.heading)
		return cos * speed, sin * speed, 0, y * min(1, math.Abs(speed))
	}
	vn, ve, _ = q.towards(t)
	return vn, ve, 0, 0
}

func (b *simPX4KindBrain) steer(vn, ve, vu, dt float64) {
	if !b.winged() {
		b.simPX4Brain.steer(vn, ve, vu, dt)
		return
	}
	b.quad.wing(vn, ve, vu, dt)
}
