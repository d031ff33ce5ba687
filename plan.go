package main

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// verb is what a request does beside arming or disarming.
type verb uint8

const (
	// onlyArms: nothing
	onlyArms verb = iota

	// entersMode: it sets a mode
	entersMode

	// goesTo: it flies to a place and holds there
	goesTo
)

// request is what a client asks for by POST mode, takeoff, goto or land. A nil number was not given.
type request struct {
	verb verb

	// mode: what entersMode enters. Of the other verbs it means nothing.
	mode Mode

	// arm: arm or disarm
	arm *bool

	// lat, lon: degrees, both or neither
	lat, lon *float64

	// altitude: metres above home
	altitude *float64

	// altitudeMSL: metres above mean sea level
	altitudeMSL *float64

	// offset: of a goto: metres in place of lat and lon, or of a height
	offset offset

	// heading: degrees, 0 to 360
	heading *float64

	// speed: metres per second
	speed *float64

	// from: the client, who has the sticks once its stick mode is set
	from netip.Addr

	// came is when its last bytes came, and due when they could first be read: later where it waited behind another
	// request, for a connection's place, or for a body that might still follow. Zero: it is mavrest's own.
	came, due time.Time
}

// offset says in metres where a place is, from where the vehicle is when its step goes out: to the north and east, or
// ahead of its nose and to the right of it, and above. A nil number was not given; the missing one of a pair is 0.
type offset struct{ north, east, forward, right, up *float64 }

// checkLag refuses what moves or arms the vehicle where the line is so far behind that its place is not known. What
// makes it safe goes out all the same. armed: it is armed already.
func (r request) checkLag(behind time.Duration, armed bool) error {
	safe := r.urgent() && r.lat == nil && (armed || !r.arms())
	if behind < freshFor || safe {
		return nil
	}
	return refuse(codeRefused, "%s: the line from the autopilot is %.1f s behind, so where the vehicle is now is not "+
		"known; hold, land and rtl are sent all the same", r.name(), behind.Seconds())
}

// placed is the request with the place that its metres come to from where the vehicle is now; NaN where that is not
// known.
func (r request) placed(v view) request {
	o := r.offset
	if !o.given() || r.lat != nil {
		return r
	}
	north, east := or(o.north, 0), or(o.east, 0)
	if o.byNose() {
		forward, right := or(o.forward, 0), or(o.right, 0)
		sin, cos := math.Sincos(v.heading * math.Pi / 180)
		north, east = forward*cos-right*sin, forward*sin+right*cos
	}
	lat, lon := displaced(v.place.lat, v.place.lon, north, east)
	r.lat = &lat
	r.lon = &lon
	return r
}

// Limits of the places that a client names. Those that mavrest keeps have none.
const (
	// defaultReach is the reach without -reach, in metres.
	defaultReach = 10_000.0

	// defaultCeiling is the ceiling without -ceiling, in metres above home.
	defaultCeiling = 120.0

	// lowOver is how low over the ground that it left, in metres, a drone is not sent below home.
	lowOver = 2.0

	// homeMoves is how far below home, in metres, that ground may be all the same: home moves.
	homeMoves = 1.0

	// deepBelow is how far below home, in metres, a descent may lead whose height does not count from home.
	deepBelow = 30.0

	// lowestAltitude is the lowest altitude of a goto, in metres above home (openapi.yaml).
	lowestAltitude = -500.0
)

// checkReach returns an error for a place or a height that its client hardly means: swapped
// coordinates lead to another continent, a height above home that is given as one above the sea
// leads into the ground. at is where the vehicle was last: it can't be far from there. What is unknown is
// not compared: NaN is neither less nor more than a number.
func (r request) checkReach(at place, home point, reach float64) error {
	if r.lat != nil {
		if err := r.checkPlaceReach(at, home, reach); err != nil {
			return err
		}
	}
	if r.altitudeMSL != nil {
		return checkDescent(at, home, *r.altitudeMSL)
	}
	return nil
}

// checkPlaceReach returns an error for a place that is over reach, in metres, from the vehicle and
// from home, and for metres that come to 0, 0. The way home is never too far.
func (r request) checkPlaceReach(at place, home point, reach float64) error {
	if r.offset.overGround() && isNowhere(*r.lat, *r.lon) {
		return refuse(codeOutOfRange, "%s: that comes to 0, 0, which is no place that a drone is sent to",
			r.offset.field())
	}
	fromVehicle := distance(at.lat, at.lon, *r.lat, *r.lon)
	fromHome := distance(home.lat, home.lon, *r.lat, *r.lon)
	inReach := fromVehicle <= reach || fromHome <= reach
	outOfReach := fromVehicle > reach || fromHome > reach
	if inReach || !outOfReach {
		return nil
	}
	field, asks := "lat, lon", ""
	switch {
	case r.offset.overGround():
		field = r.offset.field()
	case distance(at.lat, at.lon, *r.lon, *r.lat) <= reach:
		asks = "; are lat and lon swapped?"
	}
	return refuse(codeOutOfRange, "%s: the place is %s from the drone and %s from home, and may be %s away (-reach)%s",
		field, kilometres(fromVehicle), kilometres(fromHome), kilometres(reach), asks)
}

// isNowhere reports whether a place is 0, 0: it lies in the sea, and is what a client sends that has no place.
func isNowhere(lat, lon float64) bool { return math.Round(lat*1e7) == 0 && math.Round(lon*1e7) == 0 }

// kilometres is a distance in a sentence.
func kilometres(metres float64) string {
	switch {
	case math.IsNaN(metres):
		return "an unknown distance"
	case metres >= 1e6:
		return fmt.Sprintf("%.0f km", metres/1000)
	}
	return fmt.Sprintf("%.4g km", metres/1000)
}

// checkDescent returns an error for a height above the sea that is deep below home and below the
// vehicle. A descent that is meant can be given above home.
func checkDescent(at place, home point, amsl float64) error {
	belowHome := home.amsl - amsl
	belowVehicle := at.amsl - amsl
	climbs := belowVehicle <= 0
	if !(belowHome > deepBelow) || climbs {
		return nil
	}
	vehicle := ""
	plainly := ""
	if !math.IsNaN(belowVehicle) {
		vehicle = fmt.Sprintf(", and %.0f m below the drone, which is at %.0f m", belowVehicle, at.amsl)
	}
	if -belowHome >= lowestAltitude {
		plainly = fmt.Sprintf(`; if it is meant, send "altitude":%.0f, which counts from home`, -belowHome)
	}
	return refuse(codeOutOfRange, "altitude_msl: %g m is %.0f m below home, which is at %.0f m above the sea%s%s",
		amsl, belowHome, home.amsl, vehicle, plainly)
}

// checkHeight returns an error for a given height that its client hardly means: one above the ceiling, as a height
// above the sea is that is given as one above home, metres down that lead deep below home, or one in the ground that
// the drone has just left. above is how high it is above that, assumed that this ground is only assumed: it was
// landing. Nobody is kept from coming down, and nothing unknown counts as low.
func (r request) checkHeight(at place, home point, above float64, assumed bool, ceiling float64) error {
	field, said, to := "altitude", "", or(r.altitude, math.NaN())
	now := at.altitude
	if math.IsNaN(now) {
		now = at.amsl - home.amsl
	}
	if r.altitudeMSL != nil {
		field, to, now = "altitude_msl", *r.altitudeMSL-home.amsl, at.amsl-home.amsl
		said = fmt.Sprintf("%g m above the sea is ", *r.altitudeMSL)
	}
	if r.offset.up != nil {
		field, to = "up", now+*r.offset.up
		said = fmt.Sprintf("%g m up is ", *r.offset.up)
	}
	from := "home"
	if r.altitudeMSL != nil && math.IsNaN(home.amsl) {
		from, to, now = "the drone", *r.altitudeMSL-at.amsl, 0
	}
	why := ""
	switch descends := to <= now; {
	case centimetres(to) > ceiling && !descends:
		return refuse(codeOutOfRange, "%s: %s%g m above %s, and the ceiling is %g m; to fly higher start mavrest "+
			"with -ceiling %.0f", field, said, centimetres(to), from, ceiling, math.Ceil(to))
	case from == "home" && to < -homeMoves && above < lowOver && !(to >= now):
		why = fmt.Sprintf("and the drone is %.1f m above the ground that it left; climb first", above)
		if assumed {
			why = fmt.Sprintf("and the drone was landing: the ground may be %.1f m below it; climb first",
				max(0, above))
		}
	case r.offset.up != nil && to < -deepBelow && descends:
		why = "which is deep"
		if to >= lowestAltitude {
			why += fmt.Sprintf(`; if it is meant, send "altitude":%g`, centimetres(to))
		}
	default:
		return nil
	}
	return refuse(codeOutOfRange, "%s: %s%g m below home, %s", field, said, centimetres(-to), why)
}

// centimetres is a height in metres, rounded for a sentence.
func centimetres(metres float64) float64 { return math.Round(metres*100) / 100 }

// plan is how a request is carried out on one autopilot: its commands in order, and where they lead.
type plan struct {
	steps []step

	// destination is where it flies to; a takeoff has only the altitude.
	destination *place

	// second: the landing at a place, sent once the destination is reached; nil: no second leg
	second *step

	// stop: the hold that stops what drives before it is disarmed; nil: it stands, or is not disarmed
	stop *step
}

// goal is what the last step that sets a mode leads to; nil: the plan only arms or disarms.
func (p *plan) goal() *goal {
	for _, s := range slices.Backward(p.steps) {
		if s.to != nil {
			return s.to
		}
	}
	return nil
}

// away reports whether the vehicle flies to a place.
func (p *plan) away() bool { return slices.ContainsFunc(p.steps, func(s step) bool { return s.away }) }

// plan says how the request is carried out on v, or why it can't be. aim is the destination
// whose height it keeps; nil: there is none.
func (r request) plan(v view, aim *aim) (p plan, err error) {
	if err := v.readOnly(); err != nil {
		return p, err
	}
	switch {
	case r.disarms() && !v.mayDisarm():
		return p, refuse(codeRefused, "arm: the vehicle is in the air; land first")
	case r.setsMode() && r.endsDisarmed() && v.flying() && !v.drives():
		return p, refuse(codeRefused, "arm: the vehicle is in the air; land first; the mode was not set either")
	case r.setsMode():
		p, err = r.planFlight(v, aim)
	case !v.armed && v.shown() == ModeTakeoff && r.arms():
		// armed in AUTO.TAKEOFF or TAKEOFF, it would take off
		p.steps = []step{v.firmware.enter(ModeHold)}
	case r.arms() && v.setsOff():
		_, name := v.firmware.reported(v.custom)
		return p, refuse(codeRefused, "arm: in %s the vehicle may drive or climb off by itself once it is armed; "+
			"set hold first", name)
	}

	if r.enters(ModeLand) || r.endsDisarmed() {
		p.stop = v.stopFirst()
	}

	// A takeoff's steps already arm.
	if err == nil && r.arm != nil && !r.enters(ModeTakeoff) {
		p.steps = append(p.steps, v.firmware.armDisarm(*r.arm))
	}
	return p, err
}

// stopFirst is the hold that stops what drives; nil if it stands or does not drive. Its motor is its brake: disarmed
// it would roll on.
func (v view) stopFirst() *step {
	if !v.drives() || !v.armed || v.groundSpeed() < still {
		return nil
	}
	stop := v.pause()
	return &stop
}

// planFlight is the part of a plan that sets a mode.
func (r request) planFlight(v view, aim *aim) (plan, error) {
	mode := r.leadsTo()
	exists := v.canEnter(mode)
	switch {
	case !exists && mode == ModeLand:
		return plan{}, refuse(codeUnsupported, "land: a fixed wing lands by a mission, not by a command")
	case !exists && v.drives():
		return plan{}, refuse(codeUnsupported, "%s: this vehicle drives; it has no such mode", mode)
	case !exists:
		return plan{}, refuse(codeUnsupported, "mode: this vehicle has no mode for %q", mode)
	case r.dependsOnKind(v):
		return plan{}, refuse(codeWrongMode, "%s: this VTOL does not report now whether it hovers or is on its "+
			"wing; try again. hold, land without a place, and rtl go out", r.name())
	case mode == ModeTakeoff && v.firmware == px4:
		return r.planTakeoffPX4(v)
	case mode == ModeTakeoff:
		return r.planTakeoffArduPilot(v)
	case r.toPlace():
		return r.planGoto(v, aim)
	case mode == ModeHold && v.firmware == px4:
		return r.planHoldPX4(v, aim), nil
	case mode == ModeHold:
		return r.planHoldArduPilot(v, aim)
	}
	p := plan{steps: []step{v.firmware.enter(mode)}}
	if mode == ModeRTL || mode == ModeRTGS {
		p.leaveGround(v, aim)
		p.returnAfterTakeoff(v, aim)
	}
	return p, nil
}

// dependsOnKind reports whether the request means something else on a wing than in hover, and nobody knows which
// of both it is.
func (r request) dependsOnKind(v view) bool {
	return (v.kind() == kindUnknown && r.toPlace()) || (v.stickKind() == kindUnknown && r.entersSticks())
}

// planGoto flies to a place. For a landing there it keeps the height as any goto, and second lands.
func (r request) planGoto(v view, aim *aim) (p plan, err error) {
	if err := r.checkGoto(v, aim); err != nil {
		return p, err
	}
	to, err := r.destination(v, aim)
	if err != nil {
		return p, err
	}

	// Only DO_SET_MODE is known to end a failsafe.
	if v.firmware == px4 && v.critical {
		p.steps = append(p.steps, px4.enter(ModeHold))
	}
	p.steps = append(p.steps, r.reposition(v, to).leadingTo(r.leadsTo(), entered[v.firmware][ModeHold]))
	p.flyAway()
	if v.firmware.ardupilot() {
		p.steps = append(p.steps, r.adjust(v)...)
	}
	p.destination = &to
	if r.enters(ModeLand) {
		landing := v.firmware.enter(ModeLand)
		p.second = &landing
	}
	return p, nil
}

// checkGoto is why the vehicle can't fly or drive to the place now. Both autopilots acknowledge a goto
// on the ground and drop it, so it is refused here, unless a takeoff that was commanded here is under way: then it
// waits until the drone is clear of the ground (rule 11).
func (r request) checkGoto(v view, aim *aim) error {
	switch {
	case v.drives() && (r.altitude != nil || r.altitudeMSL != nil):
		return refuse(codeUnsupported, "altitude and altitude_msl: this vehicle drives; leave them out")
	case v.drives() && or(r.offset.up, 0) != 0:
		return refuse(codeUnsupported, "up: this vehicle drives; leave it out")
	case v.drives() && r.heading != nil:
		return refuse(codeUnsupported, "heading: this vehicle stands as it came; leave it out")
	case v.drives() && !v.armed:
		return refuse(codeRefused, "not armed: arm it first")
	case !v.flying() && !v.takesOff(aim) && !v.drives():
		return refuse(codeRefused, "not in the air: take off first, and wait until in_air is true")
	}
	if err := v.checkHover(r); err != nil {
		return err
	}
	switch circles := v.circle() > 0; {
	case circles && r.enters(ModeLand):
		return v.onWingNot("land: on its wing the vehicle circles a place and can't land there",
			"land without lat and lon")
	case circles && or(r.offset.right, 0) != 0:
		return v.onWingNot("right: on its wing the vehicle can't fly sideways", "leave it out")
	case circles && r.heading != nil:
		return v.onWingNot("heading: on its wing the vehicle circles a place and can't keep one", "leave it out")
	}
	return r.checkSpeed(v)
}

// destination completes a goto with the parts of the present place that it keeps. It keeps the height
// of the last takeoff or goto. Without home only one of the two heights is known.
func (r request) destination(v view, aim *aim) (to place, err error) {
	to = v.place

	// In a climb the present height may be a decimetre, and a takeoff to 1 m is complete at half of it.
	if aim != nil {
		to.altitude = aim.altitude
		to.amsl = aim.amsl
	}
	to.lat, to.lon = or(r.lat, to.lat), or(r.lon, to.lon)
	if r.altitude != nil {
		to.altitude = *r.altitude
		to.amsl = v.home.amsl + *r.altitude
	} else if r.altitudeMSL != nil {
		to.altitude = *r.altitudeMSL - v.home.amsl
		to.amsl = *r.altitudeMSL
	} else if r.offset.up != nil {
		to.altitude = v.place.altitude + *r.offset.up
		to.amsl = v.place.amsl + *r.offset.up
	}

	// The height that reposition sends.
	sent := to.altitude
	if v.firmware == px4 || r.altitudeMSL != nil {
		sent = to.amsl
	}
	switch {
	case math.IsNaN(to.lat) && r.offset.given():
		err = r.notPlaced(v)
	case math.IsNaN(to.lat):
		err = refuse(codeRefused, "the autopilot has no position yet: give lat and lon, or wait for its GPS")
	case math.IsNaN(sent) && r.altitude != nil:
		// On PX4: home is unknown.
		err = refuse(codeRefused, "altitude: the autopilot has no home position yet; give altitude_msl, or wait "+
			"for its GPS")
	case math.IsNaN(sent) && r.offset.up != nil:
		err = refuse(codeRefused, "up: the vehicle's own height is not known now; wait for its position, or give "+
			"altitude or altitude_msl")
	case math.IsNaN(sent):
		err = refuse(codeRefused, "altitude: the vehicle's own height is not known now; wait for its position, or "+
			"goto with altitude or altitude_msl")
	}
	return to, err
}

// notPlaced is why the metres of a request come to no place.
func (r request) notPlaced(v view) error {
	field := r.offset.field()
	switch {
	case !math.IsNaN(v.place.lat):
		return refuse(codeRefused, "%s: the autopilot does not know where its nose points; give north and east", field)
	case !v.placeAt.IsZero() && v.now.Sub(v.placeAt) > freshFor:
		return refuse(codeRefused, "%s: the vehicle last said %.1f s ago where it is, and metres count from where it "+
			"is now", field, v.now.Sub(v.placeAt).Seconds())
	}
	return refuse(codeRefused, "%s: the autopilot has no position yet, and metres count from there; wait for its GPS",
		field)
}

// planClimb is the climb of a vehicle that is too near the ground to fly to a place.
func planClimb(v view) (p plan) {
	to := v.climbTo()

	// Only DO_SET_MODE is known to end a failsafe.
	if v.firmware == px4 && v.critical {
		p.steps = append(p.steps, px4.enter(ModeHold))
	}
	up := request{}.holdAt(v, to)
	up.name = "the climb"
	p.steps = append(p.steps, up)
	p.destination = &to
	return p
}

// planTakeoffPX4 is AUTO.LOITER, ARM, NAV_TAKEOFF: a refusal on the way then leaves no disarmed
// AUTO.TAKEOFF, which would climb when anybody arms it.
func (r request) planTakeoffPX4(v view) (plan, error) {
	altitude := or(r.altitude, defaultTakeoff)
	amsl, err := v.takeoffAMSL(altitude)
	if err != nil {
		return plan{}, err
	}
	p := plan{destination: &place{math.NaN(), math.NaN(), altitude, amsl}}
	if !v.armed {
		if v.custom != entered[px4][ModeHold] {
			p.steps = append(p.steps, px4.enter(ModeHold))
		}
		p.steps = append(p.steps, px4.armDisarm(true))
	}

	// Never 0 for latitude and longitude: PX4 then arms and stays.
	climb := px4.step(common.MAV_CMD_NAV_TAKEOFF).leadingTo(ModeTakeoff, entered[px4][ModeTakeoff])
	climb.p[6] = float32(amsl)
	climb.to.end, climb.to.endAMSL = entered[px4][ModeHold], amsl-max(altitude/5, 1)
	p.steps = append(p.steps, climb)
	return p, nil
}

// defaultTakeoff is the height of a takeoff that names none, in metres above home (openapi.yaml).
const defaultTakeoff = 10.0

// takeoffAMSL is the height of a takeoff as PX4 takes it: in metres above mean sea level,
// whatever the frame says. With a height below the present one PX4 would stay where it is, armed.
func (v view) takeoffAMSL(altitude float64) (float64, error) {
	home := v.home.amsl
	if math.IsNaN(home) && !v.flying() {
		// arming makes this place home
		home = v.place.amsl
	}
	amsl := home + altitude
	if math.IsNaN(amsl) {
		return 0, refuse(codeRefused, "takeoff: the autopilot has no home position yet; wait for its GPS")
	}
	if up := v.place.amsl - home; !v.flying() && altitude-up < liftedOff {
		return 0, refuse(codeRefused, "takeoff: to %g m it would not leave the ground: the vehicle stands %.1f m "+
			"above home, which has moved; take off to %.0f m or more", altitude, up, math.Ceil(up+1))
	}
	if amsl <= v.place.amsl {
		return 0, refuse(codeRefused, "takeoff: to %g m it would not climb: the vehicle is already %.1f m above home; "+
			"post /takeoff with a higher altitude, or use goto", altitude, v.place.amsl-home)
	}
	return amsl, nil
}

// planHoldPX4 holds by PX4's own pause, DO_REPOSITION without a place: PX4 knows where it can stop.
// A mode change alone flies on to the old target. An armed vehicle on the ground is paused too: its
// takeoff may be under way. A failsafe ends by a mode change only, and so may a mode that a pause does not end.
// On its wing a vehicle that is low is sent a height: its circle would be as low.
func (r request) planHoldPX4(v view, aim *aim) (p plan) {
	if !v.armed || v.critical || v.staysInPause() {
		p.steps = append(p.steps, px4.enter(ModeHold))
	}
	if v.armed {
		hold := v.pause()
		if here := v.holdHere(aim); here.amsl > v.place.amsl {
			hold = r.holdAt(v, here)
			p.destination = &here
		}
		p.steps = append(p.steps, hold)
	}
	p.leaveGround(v, aim)
	return p
}

// staysInPause reports whether a pause may leave PX4 in its mode: GUIDED_COURSE goes on along its course, and of a mode
// that no list has it is not known.
func (v view) staysInPause() bool {
	_, listed := v.firmware.row(v.custom)
	return v.custom == px4Course || !listed
}

// pause is PX4's own hold: DO_REPOSITION without a place.
func (v view) pause() step {
	s := px4.step(common.MAV_CMD_DO_REPOSITION, -1, 1, 0).leadingTo(ModeHold, entered[px4][ModeHold])
	s.name = "the hold"
	return s
}

// planTakeoffArduPilot is GUIDED, ARM, NAV_TAKEOFF in metres above home. A fixed wing takes off in
// its mode TAKEOFF, which is set last: whoever arms a plane in TAKEOFF starts the takeoff.
func (r request) planTakeoffArduPilot(v view) (p plan, err error) {
	f := v.firmware
	altitude := or(r.altitude, defaultTakeoff)
	if v.flying() && v.landed != 0 {
		// If the landed state is unknown the autopilot decides.
		return p, refuse(codeRefused, "takeoff: already flying; use goto to climb")
	}
	if f == plane && r.altitude != nil {
		return p, refuse(codeUnsupported, "altitude: a fixed wing takes off to its own TKOFF_ALT; leave it out")
	}
	p.steps = []step{f.enter(ModeHold)}
	if !v.armed {
		p.steps = append(p.steps, f.armDisarm(true))
	}
	climb := f.enter(ModeTakeoff)
	if f == plane {
		altitude = v.takeoffAltitude()
	} else {
		climb = f.step(common.MAV_CMD_NAV_TAKEOFF, 0, 0, 0, 0, 0, 0, float32(altitude))
		climb = climb.leadingTo(ModeTakeoff, entered[f][ModeTakeoff])
	}
	p.destination = &place{math.NaN(), math.NaN(), altitude, v.home.amsl + altitude}
	p.steps = append(p.steps, climb)
	return p, nil
}

// planHoldArduPilot holds in GUIDED. An armed Copter is sent BRAKE first, which stops it: GUIDED
// alone would fly on to its old target. A plane or QuadPlane is sent the present place, which
// enters GUIDED; a plane circles round it. A QuadPlane that would circle is sent no place where it stands already.
func (r request) planHoldArduPilot(v view, aim *aim) (plan, error) {
	hold := v.firmware.enter(ModeHold)
	p := plan{steps: []step{hold}}
	switch {
	case !v.armed:
		return p, nil
	case v.kind() == hovering && !v.hoversAtPlaces():
		// GUIDED again changes nothing
		return p, v.checkHover(r)
	case v.firmware == copter:
		p.steps = []step{copter.setMode(ModeHold, copterBrake), hold}
	case !math.IsNaN(v.place.lat):
		to := v.ahead(v.holdHere(aim))
		p.steps = []step{request{}.holdAt(v, to)}
		p.destination = &to
		p.leaveGround(v, aim)
		p.steps = append(p.steps, r.changeSpeed(v)...)
	}
	return p, v.checkHover(r)
}

// ahead is where a QuadPlane as fast as a wing holds that hovers at places: ahead of where it is, because it can't stop
// at once, and would come all the way back to a place that it has passed (docs/autopilots.md, "QuadPlane").
func (v view) ahead(here place) place {
	speed := v.groundSpeed()
	fast := (v.onWing() && speed > still) || speed > hoverFast
	if v.firmware != quadPlane || !v.hoversAtPlaces() || !fast {
		return here
	}
	metres := speed*speed/6 + 6
	here.lat, here.lon = displaced(here.lat, here.lon, metres*v.velocity.north/speed, metres*v.velocity.east/speed)
	return here
}

// hoverFast is a speed in m/s that only a wing reaches. A QuadPlane that brakes for its place, and so hovers, may have
// it still.
const hoverFast = 10.0

// holdAt is a hold at a place.
func (r request) holdAt(v view, to place) step {
	s := r.reposition(v, to).leadingTo(ModeHold, entered[v.firmware][ModeHold])
	s.name = "the hold"
	return s
}

// reposition is DO_REPOSITION with param2 = 1, which enters the hold mode too. PX4 takes z above
// mean sea level whatever the frame says, and yaw in radians. ArduPilot heeds the frame and ignores
// yaw and speed. What a goto keeps is sent as the present place: ArduPilot denies INT32_MAX.
func (r request) reposition(v view, to place) step {
	s := step{
		cmd: common.MAV_CMD_DO_REPOSITION, asInt: true, frame: common.MAV_FRAME_GLOBAL,
		x: degE7(to.lat), y: degE7(to.lon),
		p: [7]float32{-1, 1, 0, 0, 0, 0, float32(to.amsl)},
	}
	if v.firmware == px4 {
		s.p[0] = float32(or(r.speed, -1))
		s.p[3] = float32(math.Remainder(or(r.heading, math.NaN()), 360) * math.Pi / 180)
	} else if r.altitudeMSL == nil {
		s.frame = common.MAV_FRAME_GLOBAL_RELATIVE_ALT
		s.p[6] = float32(to.altitude)
	}
	return s
}

// degE7 is an angle in 1e-7 degrees, the integer that MAVLink carries places in.
func degE7(deg float64) int32 { return int32(math.Round(deg * 1e7)) }

// adjust is the speed and heading, which ArduPilot's DO_REPOSITION ignores. They go out after its
// ack: a speed sent before it is lost (docs/autopilots.md, "ArduPilot: goto").
func (r request) adjust(v view) []step {
	steps := r.changeSpeed(v)
	if r.heading != nil {
		steps = append(steps, v.firmware.step(common.MAV_CMD_CONDITION_YAW, float32(*r.heading)))
	}
	return steps
}

// changeSpeed is the request's speed or, without one, the vehicle's own: GUIDED keeps a speed for every later
// place. On a Plane it is an air speed: a ground speed would change MIN_GROUNDSPEED for good, and a throttle
// above 0 THROTTLE_CRUISE (docs/autopilots.md, "Plane").
func (r request) changeSpeed(v view) []step {
	const airSpeed, groundSpeed, ownSpeed = 0, 1, -2
	speed := or(r.speed, math.NaN())
	s := step{}
	switch {
	case v.circle() > 0:
		s = v.firmware.step(common.MAV_CMD_DO_CHANGE_SPEED, airSpeed, float32(or(r.speed, ownSpeed)))
	case v.firmware != copter:
		// A QuadPlane that hovers: see checkSpeed.
		return nil
	default:
		if r.speed == nil {
			speed = v.cruise()
		}
		if math.IsNaN(speed) {
			return nil
		}
		s = v.firmware.step(common.MAV_CMD_DO_CHANGE_SPEED, groundSpeed, float32(speed), -1)
	}
	s.optional = r.speed == nil
	return []step{s}
}

// checkSpeed is why ArduPilot can't fly at the request's speed.
func (r request) checkSpeed(v view) error {
	slowest := v.param("AIRSPEED_MIN", v.param("ARSPD_FBW_MIN", math.NaN()))
	fastest := v.param("AIRSPEED_MAX", v.param("ARSPD_FBW_MAX", math.NaN()))
	switch {
	case r.speed == nil, v.firmware == copter, v.firmware == px4:
		return nil
	case v.circle() == 0:
		return refuse(codeUnsupported, "speed: a QuadPlane that hovers has only its own (Q_WP_SPEED); leave it out")
	case *r.speed < slowest, *r.speed > fastest:
		return refuse(codeOutOfRange, "speed: on its wing this vehicle flies %g to %g m/s through the air "+
			"(AIRSPEED_MIN, AIRSPEED_MAX)", slowest, fastest)
	}
	return nil
}

// leaveGround makes a hold or a return wait until the vehicle is clear of the ground, if it is on its wing and
// leaves the ground: it would circle, and bank, where it is. Out of a landing it goes at once, and climbs.
func (p *plan) leaveGround(v view, aim *aim) {
	if v.onWing() && !v.lands() && (v.flying() || v.takesOff(aim)) {
		p.flyAway()
	}
}

// returnAfterTakeoff makes a return wait until the vehicle is clear of the ground, if it takes off: PX4 would stay in
// its return just above the ground, with turning propellers.
func (p *plan) returnAfterTakeoff(v view, aim *aim) {
	takesOff := v.takesOff(aim) || v.landed == takingOff || v.shown() == ModeTakeoff
	if v.armed && takesOff && !v.drives() {
		p.flyAway()
	}
}

// flyAway makes the steps so far wait until the vehicle is clear of the ground (rule 11).
func (p *plan) flyAway() {
	for i := range p.steps {
		p.steps[i].away = true
	}
}

// tooLow refuses what flies to a place. what names the request.
func (v view) tooLow(what string) error {
	is := fmt.Sprintf("%.1f m above it", v.height)
	switch {
	case v.landed == onGround:
		is = "on it"
	case math.IsNaN(v.height):
		is = "at a height above it that is not known, taking off or landing"
	case v.ground.assumed:
		is = fmt.Sprintf("perhaps %.1f m above it, since it was landing", max(0, v.height))
	}
	return refuse(codeRefused, "%s: the drone must once have been %g m above the ground before it flies to a "+
		"place, and is %s; take off, or climb, first", what, v.clearAt(), is)
}

// stickModes are the stick modes that the vehicle has, in a sentence.
func (v view) stickModes() string {
	list := slices.DeleteFunc(v.modes(), func(name string) bool {
		mode, _ := parseMode(name)
		return !mode.flownBySticks()
	})
	if n := len(list) - 1; n > 0 {
		return strings.Join(list[:n], ", ") + " or " + list[n]
	}
	return strings.Join(list, "")
}

// modes are the names of the modes that this vehicle can be set to, perhaps not now; any other is 501.
func (v view) modes() []string {
	list := make([]string, 0, len(modeNames))
	if v.kind() == onlyRead || v.doubt != nil {
		return list
	}
	for m := ModeManual; m < ModeOther; m++ {
		leavesHover := m == ModeHold && v.armed && v.checkHover(request{verb: entersMode, mode: m}) != nil
		if v.canEnter(m) && !leavesHover {
			list = append(list, m.String())
		}
	}
	return list
}

// checkHover returns an error where a QuadPlane is to hover at a place, but would circle it in GUIDED, 75 m
// off, as it does by default (docs/autopilots.md, "QuadPlane"): where it hovers now, or is to land there.
func (v view) checkHover(r request) error {
	toHover := v.kind() == hovering || r.enters(ModeLand)
	holds := r.enters(ModeHold)
	if !toHover || v.hoversAtPlaces() || (holds && v.standsInHold()) {
		return nil
	}
	if holds {
		return refuse(codeUnsupported, "hold: this QuadPlane would go over to its wing and circle; land, or fly it "+
			"by the sticks; it holds where Q_GUIDED_MODE is 1")
	}
	return refuse(codeUnsupported, "%s: this QuadPlane circles in GUIDED instead of hovering; set Q_GUIDED_MODE to 1",
		r.name())
}

// standsInHold reports whether the vehicle hovers in its hold mode and stands in the air. A QuadPlane does so after
// a takeoff, whatever Q_GUIDED_MODE is, until it is sent a place. In the climb, or before it, it would climb on.
func (v view) standsInHold() bool {
	speed := math.Hypot(v.groundSpeed(), v.velocity.down)
	return v.shown() == ModeHold && v.kind() == hovering && v.flying() && v.isClear() && speed < still
}

// hoversAtPlaces reports whether a vehicle that hovers stays in hover when it is sent to a place.
func (v view) hoversAtPlaces() bool {
	return v.firmware != quadPlane || v.param("Q_GUIDED_MODE", 0) == 1
}

// stays reports whether the request makes a vehicle safe where it is or on its way home, and does nothing else.
func (r request) stays() bool { return r.urgent() && r.lat == nil && r.arm == nil }

// urgent reports whether the request is for safety: a landing, a return, a hold or a disarming.
// A newer request waits for its answer.
func (r request) urgent() bool {
	return r.disarms() || (r.verb == entersMode && r.mode.makesSafe())
}

// disarms reports whether the request disarms and does nothing else.
func (r request) disarms() bool { return r.verb == onlyArms && r.endsDisarmed() }

// endsDisarmed reports whether the last step of the request disarms.
func (r request) endsDisarmed() bool { return r.arm != nil && !*r.arm }

// arms reports whether the request leads to an armed vehicle.
func (r request) arms() bool { return r.enters(ModeTakeoff) || (r.arm != nil && *r.arm) }

// entersSticks reports whether the request enters a mode that is flown by sticks.
func (r request) entersSticks() bool { return r.verb == entersMode && r.mode.flownBySticks() }

// toPlace reports whether the request flies to a place, or lands there.
func (r request) toPlace() bool { return r.verb == goesTo || (r.enters(ModeLand) && r.lat != nil) }

// enters reports whether the request is to enter a mode. A goto enters none: it flies to a place.
func (r request) enters(mode Mode) bool { return r.verb == entersMode && r.mode == mode }

// setsMode reports whether the request leads to a mode.
func (r request) setsMode() bool { return r.verb != onlyArms }

// leadsTo is the mode that a request leads to which sets one.
func (r request) leadsTo() Mode {
	if r.verb == goesTo {
		return ModeHold
	}
	return r.mode
}

// equals reports whether both ask for the same, whoever asks and when.
func (r request) equals(o request) bool {
	r.from, r.came, r.due = o.from, o.came, o.due
	return reflect.DeepEqual(r, o)
}

// name is what the request is in a sentence.
func (r request) name() string {
	switch r.verb {
	case onlyArms:
		return "arm"
	case goesTo:
		return "goto"
	}
	return r.mode.String()
}

func (o offset) given() bool { return o != offset{} }

// overGround reports whether it says where the place is, not only how high.
func (o offset) overGround() bool { return o.north != nil || o.east != nil || o.byNose() }

// byNose reports whether it counts from where the nose points.
func (o offset) byNose() bool { return o.forward != nil || o.right != nil }

// field is its first field, in words.
func (o offset) field() string {
	for _, f := range []struct {
		name  string
		value *float64
	}{{"north", o.north}, {"east", o.east}, {"forward", o.forward}, {"right", o.right}} {
		if f.value != nil {
			return f.name
		}
	}
	return "up"
}

// or returns *v, or its second argument if v was not given.
func or(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}
