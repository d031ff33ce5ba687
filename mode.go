package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Mode is an operating mode of the drone: those of docs/openapi.yaml, and ModeOther for every mode of an
// autopilot that the API has no word for. The zero value is ModeManual, the state at the start.
type Mode uint8

// The modes, with their names in the API. Their order counts: flownBySticks and makesSafe compare it, and what can be
// requested stands before ModeOther.
const (
	// ModeManual: "manual"
	ModeManual Mode = iota

	// ModeAltitude: "altitude"
	ModeAltitude

	// ModePosition: "position"
	ModePosition

	// ModeTakeoff: "takeoff"
	ModeTakeoff

	// ModeHold: "hold"
	ModeHold

	// ModeLand: "land"
	ModeLand

	// ModeRTL: "rtl"
	ModeRTL

	// ModeRTGS: "rtgs"
	ModeRTGS

	// ModeOther: "other": reported only, it can't be requested
	ModeOther
)

var modeNames = [...]string{"manual", "altitude", "position", "takeoff", "hold", "land", "rtl", "rtgs", "other"}

func (m Mode) String() string { return modeNames[m] }

// parseMode reads a mode that can be requested, in any letter case.
func parseMode(s string) (Mode, bool) {
	i := slices.Index(modeNames[:ModeOther], strings.ToLower(s))
	return Mode(max(i, 0)), i >= 0
}

// flownBySticks reports whether POST input applies in the mode.
func (m Mode) flownBySticks() bool { return m <= ModePosition }

// makesSafe reports whether a mode that is requested makes the drone safe: a hold, a landing or a return.
func (m Mode) makesSafe() bool { return m >= ModeHold }

// autopilotMode is a row of an autopilot's list of modes (docs/autopilots.md, "The modes, side by side").
type autopilotMode struct {
	// custom: the autopilot's number
	custom uint32

	// name: the autopilot's
	name string

	mode Mode

	// on: the airframes on which we command it
	on airframe

	sticks stickUse
}

// stickUse is what an autopilot does with sticks in one of its modes. A mode that no list has counts as flown by
// them: where that is wrong, sticks are centred for nothing; where the contrary was wrong, a drone would fly on.
type stickUse uint8

const (
	// steered: the sticks fly it, or shift where it flies
	steered stickUse = iota

	// thrust: the same, and their throttle is the thrust
	thrust

	// unsteered: it ignores them; on PX4 sticks that move there take the drone
	unsteered
)

// ownModes is each autopilot's own list of the modes that we have a word for, at its bit.
var ownModes = [...][]autopilotMode{
	px4: {
		{px4Custom(1, 0), "MANUAL", ModeManual, flies | rover, thrust},
		{px4Custom(2, 0), "ALTCTL", ModeAltitude, flies, steered},
		{px4Custom(3, 0), "POSCTL", ModePosition, flies | rover, steered},
		{px4Custom(3, 2), "POSCTL.SLOW", ModePosition, 0, steered},
		{px4Custom(4, 2), "AUTO.TAKEOFF", ModeTakeoff, flies, unsteered},
		{px4Custom(4, 3), "AUTO.LOITER", ModeHold, flies | rover, unsteered},
		{px4Custom(4, 5), "AUTO.RTL", ModeRTL, flies | rover, unsteered},
		{px4Custom(4, 6), "AUTO.LAND", ModeLand, flies | rover, unsteered},
		{px4Custom(4, 7), "AUTO.RTGS", ModeRTGS, 0, unsteered},
		{px4Custom(4, 9), "AUTO.PRECLAND", ModeLand, 0, unsteered},
		{px4Custom(4, 10), "AUTO.VTOL_TAKEOFF", ModeTakeoff, 0, unsteered},
		{px4Custom(5, 0), "ACRO", ModeManual, 0, thrust},
		{px4Custom(7, 0), "STABILIZED", ModeManual, 0, thrust},
		{px4Custom(8, 0), "RATTITUDE", ModeManual, 0, thrust},
	},
	copter: {
		{0, "STABILIZE", ModeManual, multicopter, thrust},
		{1, "ACRO", ModeManual, 0, thrust},
		{2, "ALT_HOLD", ModeAltitude, multicopter, steered},
		{4, "GUIDED", ModeHold, multicopter, unsteered},
		{5, "LOITER", ModePosition, multicopter, steered},
		{6, "RTL", ModeRTL, multicopter, unsteered},
		{9, "LAND", ModeLand, multicopter, steered},
		{16, "POSHOLD", ModePosition, 0, steered},
		{17, "BRAKE", ModeHold, 0, unsteered},
		{21, "SMART_RTL", ModeRTL, 0, unsteered},
		{27, "AUTO_RTL", ModeRTL, 0, unsteered},
	},
	quadPlane: planeModes,
	plane:     planeModes,
	arduRover: {
		{0, "MANUAL", ModeManual, 0, thrust},
		{1, "ACRO", ModeManual, 0, thrust},
		{4, "HOLD", ModeHold, 0, unsteered},
		{5, "LOITER", ModeHold, 0, unsteered},
		{11, "RTL", ModeRTL, 0, unsteered},
		{12, "SMART_RTL", ModeRTL, 0, unsteered},
		{15, "GUIDED", ModeHold, 0, unsteered},
	},
	arduSub: {
		{0, "STABILIZE", ModeManual, 0, thrust},
		{1, "ACRO", ModeManual, 0, thrust},
		{2, "ALT_HOLD", ModeAltitude, 0, steered},
		{4, "GUIDED", ModeHold, 0, unsteered},
		{16, "POSHOLD", ModePosition, 0, steered},
		{19, "MANUAL", ModeManual, 0, thrust},
	},
}

// planeModes are the modes of ArduPlane, which flies planes and QuadPlanes.
var planeModes = []autopilotMode{
	{0, "MANUAL", ModeManual, fixedWing, thrust},
	{6, "FBWB", ModeAltitude, fixedWing, steered},
	{11, "RTL", ModeRTL, fixedWing, unsteered},
	{13, "TAKEOFF", ModeTakeoff, fixedWing, unsteered},
	{15, "GUIDED", ModeHold, fixedWing | vtol, unsteered},
	{17, "QSTABILIZE", ModeManual, vtol, thrust},
	{18, "QHOVER", ModeAltitude, vtol, steered},
	{19, "QLOITER", ModePosition, vtol, steered},
	{20, "QLAND", ModeLand, vtol, steered},
	{21, "QRTL", ModeRTL, vtol, unsteered},
	{26, "AUTOLAND", ModeLand, 0, unsteered},
}

// otherModes are the autopilots' other modes, which we have no word for.
var otherModes = [...][]autopilotMode{
	px4: {
		{px4Custom(3, 1), "POSCTL.ORBIT", ModeOther, 0, steered},
		{px4Custom(4, 1), "AUTO.READY", ModeOther, 0, unsteered},
		{px4Custom(4, 4), "AUTO.MISSION", ModeOther, 0, unsteered},
		{px4Custom(4, 8), "AUTO.FOLLOW_TARGET", ModeOther, 0, steered},
		{px4Custom(4, 11), "AUTO.EXTERNAL1", ModeOther, 0, steered},
		{px4Custom(4, 12), "AUTO.EXTERNAL2", ModeOther, 0, steered},
		{px4Custom(4, 13), "AUTO.EXTERNAL3", ModeOther, 0, steered},
		{px4Custom(4, 14), "AUTO.EXTERNAL4", ModeOther, 0, steered},
		{px4Custom(4, 15), "AUTO.EXTERNAL5", ModeOther, 0, steered},
		{px4Custom(4, 16), "AUTO.EXTERNAL6", ModeOther, 0, steered},
		{px4Custom(4, 17), "AUTO.EXTERNAL7", ModeOther, 0, steered},
		{px4Custom(4, 18), "AUTO.EXTERNAL8", ModeOther, 0, steered},
		{px4Course, "AUTO.GUIDED_COURSE", ModeOther, 0, unsteered},
		{px4Custom(6, 0), "OFFBOARD", ModeOther, 0, unsteered},
		{px4Custom(10, 0), "TERMINATION", ModeOther, 0, unsteered},
		{px4Custom(11, 0), "ALTITUDE_CRUISE", ModeOther, 0, steered},
	},
	copter: {
		{3, "AUTO", ModeOther, 0, unsteered},
		{7, "CIRCLE", ModeOther, 0, steered},
		{11, "DRIFT", ModeOther, 0, steered},
		{13, "SPORT", ModeOther, 0, steered},
		{14, "FLIP", ModeOther, 0, steered},
		{15, "AUTOTUNE", ModeOther, 0, steered},
		{18, "THROW", ModeOther, 0, unsteered},
		{19, "AVOID_ADSB", ModeOther, 0, unsteered},
		{20, "GUIDED_NOGPS", ModeOther, 0, unsteered},
		{22, "FLOWHOLD", ModeOther, 0, steered},
		{23, "FOLLOW", ModeOther, 0, unsteered},
		{24, "ZIGZAG", ModeOther, 0, steered},
		{25, "SYSTEMID", ModeOther, 0, thrust},
		{26, "AUTOROTATE", ModeOther, 0, steered},
		{28, "TURTLE", ModeOther, 0, thrust},
		{30, "OFFBOARD", ModeOther, 0, steered},
	},
	quadPlane: otherPlaneModes,
	plane:     otherPlaneModes,
	arduRover: {
		{3, "STEERING", ModeOther, 0, thrust},
		{6, "FOLLOW", ModeOther, 0, unsteered},
		{7, "SIMPLE", ModeOther, 0, thrust},
		{8, "DOCK", ModeOther, 0, unsteered},
		{9, "CIRCLE", ModeOther, 0, unsteered},
		{10, "AUTO", ModeOther, 0, unsteered},
		{16, "INITIALISING", ModeOther, 0, unsteered},
		{30, "OFFBOARD", ModeOther, 0, steered},
	},
	arduSub: {
		{3, "AUTO", ModeOther, 0, unsteered},
		{7, "CIRCLE", ModeOther, 0, steered},
		{9, "SURFACE", ModeOther, 0, steered},
		{20, "MOTOR_DETECT", ModeOther, 0, unsteered},
		{21, "SURFTRAK", ModeOther, 0, steered},
	},
}

var otherPlaneModes = []autopilotMode{
	{1, "CIRCLE", ModeOther, 0, unsteered},
	{2, "STABILIZE", ModeOther, 0, thrust},
	{3, "TRAINING", ModeOther, 0, thrust},
	{4, "ACRO", ModeOther, 0, thrust},
	{5, "FBWA", ModeOther, 0, thrust},
	{7, "CRUISE", ModeOther, 0, steered},
	{8, "AUTOTUNE", ModeOther, 0, thrust},
	{10, "AUTO", ModeOther, 0, unsteered},
	{12, "LOITER", ModeOther, 0, unsteered},
	{14, "AVOID_ADSB", ModeOther, 0, unsteered},
	{16, "INITIALISING", ModeOther, 0, unsteered},
	{22, "QAUTOTUNE", ModeOther, 0, steered},
	{23, "QACRO", ModeOther, 0, thrust},
	{24, "THERMAL", ModeOther, 0, unsteered},
	{25, "LOITER_ALT_QLAND", ModeOther, 0, unsteered},
	{30, "OFFBOARD", ModeOther, 0, steered},
}

// px4Course is PX4's AUTO.GUIDED_COURSE, from 1.18 on: it flies on along a course, also after a pause.
const px4Course = 4<<16 | 19<<24

// px4Custom is PX4's custom_mode of a main mode and a sub mode.
func px4Custom(main, sub uint32) uint32 { return main<<16 | sub<<24 }

// reported returns our mode for a heartbeat's custom mode, and the autopilot's own name for it.
func (f firmware) reported(custom uint32) (Mode, string) {
	m, _ := f.row(custom)
	return m.mode, m.name
}

// row is an autopilot's mode by its number; of one that no list has only its number and a name that says it.
func (f firmware) row(custom uint32) (row autopilotMode, listed bool) {
	for _, list := range [][]autopilotMode{ownModes[f], otherModes[f]} {
		for _, m := range list {
			if m.custom == custom {
				return m, true
			}
		}
	}
	name := fmt.Sprintf("MODE %d", custom)
	if f == px4 {
		name = fmt.Sprintf("MODE %d.%d", custom>>16&0xff, custom>>24)
	}
	return autopilotMode{custom, name, ModeOther, 0, steered}, false
}

// entered is the table Mode → custom mode. What is missing does not exist on any vehicle of that family.
var entered = modesToEnter()

func modesToEnter() map[firmware]map[Mode]uint32 {
	table := make(map[firmware]map[Mode]uint32)
	for bit, rows := range ownModes {
		if rows == nil {
			continue
		}
		f := firmware(bit)
		enter := make(map[Mode]uint32)
		for _, row := range rows {
			if row.on&f.airframes() != 0 {
				enter[row.mode] = row.custom
			}
		}
		enter[ModeRTGS] = enter[ModeRTL]

		// Some climb in the mode that they hold in.
		enter[ModeTakeoff] = cmp.Or(enter[ModeTakeoff], enter[ModeHold])
		table[f] = enter
	}
	return table
}

// copterBrake is Copter's BRAKE: it stops, and stays until another mode is set.
const copterBrake = 17

// Times of the reports and of the mode machine (docs/design.md, "Reports" and rule 3).
const (
	// olderMost is how much later than a CURRENT_MODE a HEARTBEAT may seem to have left that shows the mode before it:
	// 15 ms by PX4, and by how far the line may have fallen behind since the newest clock, or without being late yet.
	olderMost = 20*time.Millisecond + lineJitter + clockGap

	// newerLeast is what newerAfter returns at least.
	newerLeast = 100 * time.Millisecond

	// pollArmed is the age of the last report at which an armed vehicle is asked again.
	pollArmed = 200 * time.Millisecond

	// pollDisarmed is the same for a disarmed one. While a step waits see againAfter.
	pollDisarmed = 1500 * time.Millisecond

	// vainMost is by how many the requests that were accepted outnumber the HEARTBEATs of a vehicle that does not send
	// them when it is asked. A line that loses half of all frames does not come there.
	vainMost = 20

	// pollVain is the time between two questions to such a vehicle, unless something waits for the report.
	pollVain = time.Second

	// reportAgain, or a round trip if that is longer, is the time between two questions for what is waited for.
	reportAgain = 20 * time.Millisecond

	// reportMost is the longest reportAgain, because on a slow line many questions are lost.
	reportMost = 100 * time.Millisecond

	// followTime is how long after its newest copy a step explains a report.
	followTime = 5 * time.Second

	// claimSlack is how much too early the moment may be at which a report is taken to have left. One that left earlier
	// than that before the step was sent does not show it.
	claimSlack = clockGap

	// ownAgain is the time between two tries of what mavrest commands by itself.
	ownAgain = time.Second
)

// shownMode is what a HEARTBEAT shows. A CURRENT_MODE has only a number.
type shownMode struct {
	// custom: the vehicle's own number of its mode
	custom uint32

	armed, failsafe bool

	// at is when the number left the vehicle, at the latest.
	at time.Time
}

// reports makes reports of HEARTBEATs and of PX4's CURRENT_MODEs. A CURRENT_MODE has no armed bit and comes
// up to 15 ms before its mode is in force, so its number is kept until a HEARTBEAT shows it. Whoever asks
// gives the last report, which the mode machine keeps.
type reports struct {
	// at is when the last HEARTBEAT left the vehicle that made reports; zero before the first.
	at time.Time

	// after is a moment after which it left, for certain or by assumption (leaving); zero if none is known.
	after time.Time

	// kept: numbers that no HEARTBEAT has shown yet, the oldest first
	kept []shownMode

	// alive is when a HEARTBEAT came last, or a CURRENT_MODE after the first HEARTBEAT; zero before that.
	alive time.Time

	// asked is when a HEARTBEAT was requested last, askedProof when one that proves when it left was.
	asked, askedProof time.Time

	// open: the last request was not accepted yet
	open bool

	// vain is by how many the requests that were accepted outnumber the HEARTBEATs that came, from 0 to vainMost.
	vain int

	// awaited is the moment after which a report must have left that a step waits for, or waited for last: untilGone,
	// untilProven and awaitLine set it. proofFor is the last such moment for which hearProof has asked for a report at
	// once, so that it does so once for each.
	awaited, proofFor time.Time

	// portAway: the last request of HEARTBEAT could not be queued: the port is down, or its queue is full
	portAway bool

	// portAwayAt is when the port was last found down, zero if never: no report from before that counts.
	portAwayAt time.Time
}

// report is a mode that the vehicle shows, and the facts that the machine judges it by.
type report struct {
	shownMode

	// mode: of custom
	mode Mode

	// amsl is where the vehicle is, metres above mean sea level; NaN if unknown.
	amsl float64

	// streamed: our own stick stream runs, and the vehicle is a PX4
	streamed bool
}

// goal is what a step leads to. The number may be that of another mode: a landing on the way to
// its place is flown in the hold's, a Copter's takeoff in GUIDED.
type goal struct {
	// mode is what GET mode answers once the step is accepted.
	mode Mode

	// number: the autopilot's own mode that then shows
	number uint32

	// PX4 ends a takeoff in AUTO.LOITER. end is that mode's number, 0 on any other vehicle and
	// for any other goal. Below endAMSL a pilot set it (rule 3).
	end     uint32
	endAMSL float64
}

// claim is a step that was sent and that no report has shown yet. The first report of its
// number, or of its takeoff's end, within followTime is ours.
type claim struct {
	// to: of the step
	to *goal

	// from and at are when its first and its newest copy were sent.
	from, at time.Time
}

// machine is the mode machine of docs/design.md: from what was commanded and what the vehicle reports it
// knows which mode the drone is in. The zero value is a drone that was never heard: manual.
type machine struct {
	// mode is what GET mode answers.
	mode Mode

	// commanded is the goal of the last step that was accepted or that a report has shown; nil: nothing
	// that was commanded explains a report.
	commanded *goal

	// reports are made of what comes, one after the other.
	reports reports

	// last: the last report
	last report

	// failsafeAt is when the last failsafe began; zero if none has.
	failsafeAt time.Time

	// known: a report came, or a step was accepted, since the autopilot's start
	known bool

	// claims: the steps that were sent and not shown yet, the oldest first
	claims []claim
}

// hearNumber takes a CURRENT_MODE that left at a moment, at the latest, and reports whether its number is kept.
func (m *machine) hearNumber(custom uint32, left, now time.Time) (kept bool) {
	return m.reports.takeNumber(custom, m.last.shownMode, left, now)
}

// takeNumber takes a CURRENT_MODE that left at a moment, at the latest. It keeps the number if it is new, and reports
// whether it is.
func (r *reports) takeNumber(custom uint32, last shownMode, left, now time.Time) (keeps bool) {
	// Before the first HEARTBEAT it is not known what vehicle it is.
	if r.at.IsZero() {
		return false
	}
	r.alive = now
	if custom == r.newest(last).custom {
		return false
	}
	r.kept = append(r.kept, shownMode{custom: custom, at: left})
	r.askNow()
	return true
}

// takeHeartbeat takes a HEARTBEAT that came at now, and returns the reports that it makes, the oldest
// first; no report if it is older than the newest kept number. d is when it left.
func (r *reports) takeHeartbeat(b, last shownMode, d leaving, now time.Time) (list []shownMode) {
	r.takeAlive(now)
	b.at = d.latest
	newest := r.newest(last)
	mayBeOlder := r.keeps() && b.at.Sub(newest.at) <= olderMost

	// PX4 leaves LAND in the instant of disarming: the number is in force already.
	if mayBeOlder && last.armed && !b.armed {
		b.custom = newest.custom
	}
	if mayBeOlder && b.custom != newest.custom {
		return nil
	}
	for _, k := range r.kept {
		list = append(list, shownMode{k.custom, b.armed, b.failsafe, k.at})
	}

	// Else the newest kept number is the HEARTBEAT's report.
	if !r.keeps() || b.custom != newest.custom {
		list = append(list, b)
	}
	r.at = d.left
	r.after = d.after
	r.kept = nil
	return list
}

// takeAlive takes that a HEARTBEAT came.
func (r *reports) takeAlive(now time.Time) {
	r.alive = now
	r.vain = max(r.vain-1, 0)
}

// newest is the number that is kept last or, where none is kept, the last report's.
func (r *reports) newest(last shownMode) shownMode {
	if r.keeps() {
		return r.kept[len(r.kept)-1]
	}
	return last
}

// hearProof takes that what comes from now on left after a moment. Where a step waits for such a report it is asked for
// at once.
func (r *reports) hearProof(after time.Time) {
	if r.proofFor.Before(r.awaited) && r.after.Before(r.awaited) && !after.Before(r.awaited) {
		r.proofFor = r.awaited
		r.askNow()
	}
}

// askNow makes the next request for HEARTBEAT due at once, if one is waited for.
func (r *reports) askNow() { r.asked = time.Time{} }

// judgement is what a report means, beside the one before it.
type judgement struct {
	means meaning

	// before: the report before it, and modeBefore the mode
	before     report
	modeBefore Mode

	// first: it is the first one, or the first one since a restart
	first bool

	// failsafeBegins: it is the first one that shows a failsafe
	failsafeBegins bool

	// failsafeActs: what it shows is a failsafe's act. One that only lasts did not change the mode: a Copter is
	// CRITICAL for the whole flight after a low battery.
	failsafeActs bool
}

// meaning is what a report means, after what was commanded and shown before (rule 3).
type meaning uint8

const (
	// meansStart: the first one, of a disarmed vehicle
	meansStart meaning = iota

	// meansBelongs: what was commanded explains it.
	meansBelongs

	// meansEqual: it shows what the one before showed
	meansEqual

	// meansArms: it only arms or disarms, in a mode that was not commanded
	meansArms

	// meansClaimed: a step that was sent, and not shown yet, explains it
	meansClaimed

	// meansFallsBack: the autopilot fell back to another mode when it disarmed
	meansFallsBack

	meansTakeover
)

// judge takes a report (rule 3).
func (m *machine) judge(r report) judgement {
	v := judgement{
		before: m.last, modeBefore: m.mode, first: !m.known, failsafeBegins: r.failsafe && !m.last.failsafe,
	}
	if v.failsafeBegins {
		m.failsafeAt = r.at
	}
	v.failsafeActs = r.failsafe && r.at.Sub(m.failsafeAt) <= failsafeActsIn
	v.means = m.take(r)
	return v
}

// failsafeActsIn is how long after a failsafe's begin a change of the mode is its act.
const failsafeActsIn = time.Second

// take makes a report the last one, and returns what it means.
func (m *machine) take(r report) meaning {
	now := r.at
	claim := m.claimed(now, func(to *goal) bool { return to.number == r.custom || to.atEnd(r) })
	means := m.meaning(r, claim)
	m.last = r
	m.known = true
	switch means {
	case meansStart:
		m.mode = ModeManual
	case meansArms, meansFallsBack:
		// No claim ends.
		m.show(r)
	case meansClaimed:
		// The claim ends, and so do older ones. What ends such a mode may show before its step is accepted;
		// until then mode is the reported one.
		to := m.claims[claim].to
		m.claims = m.claims[claim+1:]
		m.show(r)
		m.commanded = to
	case meansTakeover:
		m.claims = nil
		m.show(r)
	}
	return means
}

// claimed is the index of the first claim whose goal matches, or -1.
func (m *machine) claimed(now time.Time, matches func(to *goal) bool) int {
	return slices.IndexFunc(m.claims, func(c claim) bool {
		return now.Sub(c.from) > -claimSlack && now.Sub(c.at) < followTime && matches(c.to)
	})
}

// meaning is what a report means; claim is the claim that explains it, −1 if none does. Its order counts: a
// report that is explained keeps what was commanded, also where it only arms or disarms.
func (m *machine) meaning(r report, claim int) meaning {
	first := !m.known
	same := !first && r.custom == m.last.custom
	switch {
	case first && !r.armed:
		return meansStart
	case m.explains(r):
		return meansBelongs
	case same && r.armed == m.last.armed:
		return meansEqual
	case same:
		return meansArms
	case claim >= 0:
		return meansClaimed
	case !first && m.last.armed && !r.armed:
		return meansFallsBack
	}
	return meansTakeover
}

// explains reports whether r belongs to what was commanded (rule 3).
func (m *machine) explains(r report) bool {
	g := m.commanded
	switch {
	case !r.armed && r.streamed && r.custom == entered[px4][ModePosition]:
		return true
	case g == nil:
		return false
	case r.custom == g.number || g.atEnd(r):
		return true
	}
	ends := g.mode == ModeLand || g.mode == ModeRTL || g.mode == ModeRTGS

	// No autopilot falls back to these.
	return ends && !r.armed && r.mode != ModeRTL && r.mode != ModeTakeoff
}

// atEnd reports whether r shows the end of a takeoff.
func (g *goal) atEnd(r report) bool {
	return g.end != 0 && r.custom == g.end && r.armed && r.amsl >= g.endAMSL
}

// claim records that a copy of a step that leads to a mode is sent now.
func (m *machine) claim(to *goal, now time.Time) {
	from := now
	if i := slices.IndexFunc(m.claims, func(c claim) bool { return c.to == to }); i >= 0 {
		from = m.claims[i].from
	}
	m.claims = slices.DeleteFunc(m.claims, func(c claim) bool { return c.to == to || now.Sub(c.at) >= followTime })
	m.claims = append(m.claims, claim{to, from, now})
}

// accepted makes an accepted step's mode the mode (rule 2).
func (m *machine) accepted(g goal) {
	// It is newer than every claim.
	m.claims = nil
	m.mode = g.mode
	m.commanded = &g
	m.known = true
}

// refused forgets a step that was refused: it explains no later report.
func (m *machine) refused(to *goal) {
	if m.commanded == to {
		m.commanded = nil
	}
	m.claims = slices.DeleteFunc(m.claims, func(c claim) bool { return c.to == to })
}

// abandon forgets what was commanded: the mode is the reported one.
func (m *machine) abandon() { m.show(m.last) }

// show makes the reported mode the mode, and forgets what was commanded.
func (m *machine) show(r report) {
	m.mode = r.mode
	m.commanded = nil
}

// restart forgets all but the mode, the last report and when it came: the autopilot has started again.
func (m *machine) restart() {
	m.reports.restart()
	*m = machine{mode: m.mode, last: m.last, reports: m.reports, failsafeAt: m.failsafeAt}
}

// restart forgets the kept numbers: the autopilot has started again.
func (r *reports) restart() { r.kept = nil }

// ask takes that HEARTBEAT is requested. waits: a step waits for one that proves when it left.
func (r *reports) ask(waits bool, now time.Time) {
	r.asked = now
	r.open = true
	if waits {
		r.askedProof = now
	}
}

// takeAck takes that a request for a message was accepted.
func (r *reports) takeAck() {
	if r.open {
		r.vain = min(r.vain+1, vainMost)
	}
	r.open = false
}

// askedSince reports whether a report that proves when it left was requested at a moment or since.
func (r *reports) askedSince(at time.Time) bool { return !r.askedProof.Before(at) }

// due is when HEARTBEAT is to be requested next. armed is the last report's.
func (r *reports) due(armed bool, trip time.Duration) time.Time {
	if r.keeps() {
		return r.dueAwaited(trip)
	}
	age := pollDisarmed
	if armed {
		age = pollArmed
	}
	gap := pollArmed
	if r.vain == vainMost {
		gap = pollVain
	}
	return later(r.asked.Add(gap), r.at.Add(age))
}

// dueAwaited is when HEARTBEAT is to be requested next while something waits for a report.
func (r *reports) dueAwaited(trip time.Duration) time.Time { return r.asked.Add(againAfter(trip)) }

// keeps reports whether a number is kept: the vehicle's mode is about to change.
func (r *reports) keeps() bool { return len(r.kept) > 0 }

// againAfter is the time between two requests of what is waited for.
func againAfter(trip time.Duration) time.Duration { return min(max(reportAgain, trip), reportMost) }

// newerAfter is how long after an ack a HEARTBEAT must come to show what the ack speaks of.
func newerAfter(trip time.Duration) time.Duration { return max(newerLeast, 2*trip) }
