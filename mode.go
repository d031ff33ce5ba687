package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

// Mode is an operating mode of the drone: those of the spec's section 2, and
// ModeOther for every mode of an autopilot that the spec has no word for.
// The zero value is ModeManual, the spec's initial state.
type Mode uint8

// The modes, with their names on the wire.
const (
	ModeManual   Mode = iota // "manual"
	ModeAltitude             // "altitude"
	ModePosition             // "position"
	ModeTakeoff              // "takeoff"
	ModeHold                 // "hold"
	ModeLand                 // "land"
	ModeRTL                  // "rtl"
	ModeRTGS                 // "rtgs"
	ModeOther                // "other": reported only, it can't be requested
)

var modeNames = [...]string{"manual", "altitude", "position", "takeoff", "hold", "land", "rtl", "rtgs", "other"}

func (m Mode) String() string { return modeNames[m] }

// parseMode reads a mode that can be requested, in any letter case.
func parseMode(s string) (Mode, bool) {
	i := slices.Index(modeNames[:ModeOther], strings.ToLower(s))
	return Mode(max(i, 0)), i >= 0
}

// flownBySticks reports whether POST input applies in the mode (spec 4.2).
func (m Mode) flownBySticks() bool { return m <= ModePosition }

// firmware is a family of autopilots that share one table of modes.
type firmware uint8

const (
	firmwareUnknown firmware = iota
	px4
	copter    // ArduPilot on a multirotor or helicopter
	quadPlane // ArduPilot on a VTOL plane
	plane     // ArduPilot on a fixed wing
)

func (f firmware) ardupilot() bool { return f >= copter }

// firmwareOf tells the family from a heartbeat and from EXTENDED_SYS_STATE's
// vtol_state: a QuadPlane calls itself a fixed wing (docs/autopilots.md,
// "QuadPlane"). PX4 has one table for all.
func firmwareOf(autopilot common.MAV_AUTOPILOT, typ common.MAV_TYPE, vtol uint8) firmware {
	switch autopilot {
	case common.MAV_AUTOPILOT_PX4:
		return px4
	case common.MAV_AUTOPILOT_ARDUPILOTMEGA:
		switch typ {
		case 2, 3, 4, 13, 14, 15, 29, 35:
			return copter
		case 1:
			if vtol == 0 {
				return plane
			}
			return quadPlane
		case 19, 20, 21, 22, 23, 24, 25:
			return quadPlane
		}
	}
	return firmwareUnknown
}

// px4Custom is PX4's custom_mode of a main mode and a sub mode.
func px4Custom(main, sub uint32) uint32 { return main<<16 | sub<<24 }

// autopilotMode is one row of an autopilot's own list of modes: its custom
// mode number, its name there, and what it is here.
type autopilotMode struct {
	custom uint32
	name   string
	mode   Mode
}

var px4Modes = []autopilotMode{
	{px4Custom(1, 0), "MANUAL", ModeManual},
	{px4Custom(2, 0), "ALTCTL", ModeAltitude},
	{px4Custom(3, 0), "POSCTL", ModePosition},
	{px4Custom(3, 1), "POSCTL.ORBIT", ModeOther},
	{px4Custom(3, 2), "POSCTL.SLOW", ModePosition},
	{px4Custom(4, 1), "AUTO.READY", ModeOther},
	{px4Custom(4, 2), "AUTO.TAKEOFF", ModeTakeoff},
	{px4Custom(4, 3), "AUTO.LOITER", ModeHold},
	{px4Custom(4, 4), "AUTO.MISSION", ModeOther},
	{px4Custom(4, 5), "AUTO.RTL", ModeRTL},
	{px4Custom(4, 6), "AUTO.LAND", ModeLand},
	{px4Custom(4, 7), "AUTO.RTGS", ModeRTGS},
	{px4Custom(4, 8), "AUTO.FOLLOW_TARGET", ModeOther},
	{px4Custom(4, 9), "AUTO.PRECLAND", ModeLand},
	{px4Custom(4, 10), "AUTO.VTOL_TAKEOFF", ModeTakeoff},
	{px4Custom(5, 0), "ACRO", ModeManual},
	{px4Custom(6, 0), "OFFBOARD", ModeOther},
	{px4Custom(7, 0), "STABILIZED", ModeManual},
	{px4Custom(8, 0), "RATTITUDE", ModeManual},
	{px4Custom(10, 0), "TERMINATION", ModeOther},
}

var copterModes = []autopilotMode{
	{0, "STABILIZE", ModeManual},
	{1, "ACRO", ModeManual},
	{2, "ALT_HOLD", ModeAltitude},
	{3, "AUTO", ModeOther},
	{4, "GUIDED", ModeHold},
	{5, "LOITER", ModePosition},
	{6, "RTL", ModeRTL},
	{7, "CIRCLE", ModeOther},
	{9, "LAND", ModeLand},
	{11, "DRIFT", ModeOther},
	{13, "SPORT", ModeOther},
	{14, "FLIP", ModeOther},
	{15, "AUTOTUNE", ModeOther},
	{16, "POSHOLD", ModePosition},
	{17, "BRAKE", ModeHold},
	{18, "THROW", ModeOther},
	{19, "AVOID_ADSB", ModeOther},
	{20, "GUIDED_NOGPS", ModeOther},
	{21, "SMART_RTL", ModeRTL},
	{22, "FLOWHOLD", ModeOther},
	{23, "FOLLOW", ModeOther},
	{24, "ZIGZAG", ModeOther},
	{25, "SYSTEMID", ModeOther},
	{26, "AUTOROTATE", ModeOther},
	{27, "AUTO_RTL", ModeRTL},
	{28, "TURTLE", ModeOther},
}

// planeModes serves Plane and QuadPlane, whose reports are the same firmware's.
var planeModes = []autopilotMode{
	{0, "MANUAL", ModeManual},
	{1, "CIRCLE", ModeOther},
	{2, "STABILIZE", ModeOther},
	{3, "TRAINING", ModeOther},
	{4, "ACRO", ModeOther},
	{5, "FBWA", ModeOther},
	{6, "FBWB", ModeAltitude},
	{7, "CRUISE", ModeOther},
	{8, "AUTOTUNE", ModeOther},
	{10, "AUTO", ModeOther},
	{11, "RTL", ModeRTL},
	{12, "LOITER", ModeOther},
	{13, "TAKEOFF", ModeTakeoff},
	{14, "AVOID_ADSB", ModeOther},
	{15, "GUIDED", ModeHold},
	{16, "INITIALISING", ModeOther},
	{17, "QSTABILIZE", ModeManual},
	{18, "QHOVER", ModeAltitude},
	{19, "QLOITER", ModePosition},
	{20, "QLAND", ModeLand},
	{21, "QRTL", ModeRTL},
	{22, "QAUTOTUNE", ModeOther},
	{23, "QACRO", ModeOther},
	{24, "THERMAL", ModeOther},
	{25, "LOITER_ALT_QLAND", ModeOther},
	{26, "AUTOLAND", ModeLand},
}

// ownModes is each autopilot's own list of modes.
var ownModes = map[firmware][]autopilotMode{px4: px4Modes, copter: copterModes, quadPlane: planeModes, plane: planeModes}

// reported is the table report → Mode: what a heartbeat's custom mode is here
// and what the autopilot calls it. A number outside the table is ModeOther.
func (f firmware) reported(custom uint32) (Mode, string) {
	for _, m := range ownModes[f] {
		if m.custom == custom {
			return m.mode, m.name
		}
	}
	if f == px4 {
		return ModeOther, fmt.Sprintf("MODE %d.%d", custom>>16&0xff, custom>>24)
	}
	return ModeOther, fmt.Sprintf("MODE %d", custom)
}

// entered is the table Mode → custom mode (docs/autopilots.md, "The modes, side
// by side"). What is missing here does not exist on that vehicle.
var entered = map[firmware]map[Mode]uint32{
	px4: {
		ModeManual: px4Custom(1, 0), ModeAltitude: px4Custom(2, 0), ModePosition: px4Custom(3, 0),
		ModeHold: px4Custom(4, 3), ModeRTL: px4Custom(4, 5), ModeRTGS: px4Custom(4, 5),
		ModeTakeoff: px4Custom(4, 2), ModeLand: px4Custom(4, 6), // by commands of their own
	},
	copter: {
		ModeManual: 0, ModeAltitude: 2, ModePosition: 5,
		ModeHold: 4, ModeTakeoff: 4, ModeLand: 9, ModeRTL: 6, ModeRTGS: 6,
	},
	quadPlane: {
		ModeManual: 17, ModeAltitude: 18, ModePosition: 19,
		ModeHold: 15, ModeTakeoff: 15, ModeLand: 20, ModeRTL: 21, ModeRTGS: 21,
	},
	plane: {
		ModeManual: 0, ModeAltitude: 6,
		ModeHold: 15, ModeTakeoff: 13, ModeRTL: 11, ModeRTGS: 11,
	},
}

// copterBrake is Copter's BRAKE: it stops, and stays until another mode is set.
const copterBrake = 17

// report is what one heartbeat says, and what the machine must know beside it.
type report struct {
	custom uint32
	mode   Mode // of custom
	armed  bool

	amsl     float64 // where the vehicle is, metres above mean sea level; NaN is unknown
	streamed bool    // our own stick stream runs
}

func (r report) same(o report) bool { return r.custom == o.custom && r.armed == o.armed }

// order is what an accepted plan means to the machine: the mode, and the
// autopilot's own numbers that belong to it. The zero value commands nothing.
type order struct {
	mode    Mode
	numbers []uint32
	transit bool // a land that is still on its way to its place

	// PX4 ends a takeoff in AUTO.LOITER: its number, and the height from which on
	// it is the takeoff's end and not a pilot's (rule 4). 0: there is none.
	end     uint32
	endAMSL float64
}

// followTime is how long an autopilot may take to show what it acknowledged
// (docs/design.md, rule 6).
const followTime = 5 * time.Second

// machine is the mode machine of docs/design.md: it knows what was commanded,
// what the autopilot reports, and answers which mode the drone is in. It has no
// clock and no lock. The zero value is a drone that was never heard: manual.
type machine struct {
	mode  Mode   // what GET mode answers
	order *order // what this API asked for last and the autopilot acknowledged; nil: the mode is a reported one

	last  report // the last report that counted
	raw   report // the last report at all
	heard bool   // last and raw are set
	lost  bool   // the link was lost since
	again bool   // the autopilot has started again since

	follow  time.Time // when the autopilot should have shown the order; zero: it has
	plan    []uint32  // while a plan waits for its acks: the numbers that it explains; nil: no plan
	settle  []uint32  // after a refused plan: what its late reports may still show
	late    []uint32  // after a plan without an answer: what it may still lead to
	settled time.Time // when settle and late end
}

// explains reports whether r belongs to what was commanded (rule 4).
func (m *machine) explains(r report) bool {
	o := m.order
	if !r.armed && r.streamed && r.custom == entered[px4][ModePosition] {
		return true
	}
	if o == nil {
		return r.same(m.last) && r.mode == m.mode
	}
	if slices.Contains(o.numbers, r.custom) {
		return true
	}
	if o.end != 0 && r.custom == o.end && r.armed && r.amsl >= o.endAMSL {
		return true
	}
	switch o.mode {
	case ModeLand, ModeRTL, ModeRTGS:
		// RTL always shows: no autopilot falls back to it on the ground.
		return !r.armed && r.mode != ModeRTL
	}
	return false
}

// report takes a heartbeat's report. It tells whether the report took the mode:
// nothing that was commanded here explains it.
func (m *machine) report(r report) (taken bool) {
	before := m.raw
	again, first := m.again, !m.heard || m.lost && !m.explains(r) && !slices.Contains(m.plan, r.custom)
	late := slices.Contains(m.late, r.custom) && r.mode != ModeRTL
	if m.lost || m.again { // what a plan did before says nothing now
		m.settle = nil
	}
	m.raw, m.heard, m.lost, m.again = r, true, false, false
	if again || first { // rule 2
		m.last = r
		if r.armed {
			return m.takes(r, again || !late)
		}
		if again {
			m.show(report{custom: r.custom, mode: ModeManual})
			m.last, m.late = r, nil
		}
		return false
	}
	if slices.Contains(m.settle, before.custom) && !slices.Contains(m.settle, r.custom) {
		m.settle = nil // what the refused plan did has been taken back
	}
	explained, last := m.explains(r), m.last
	if explained { // also while a plan waits: from here on, what it was before is new again
		m.last = r
		// A takeoff that is still disarmed has not been followed yet.
		if m.mode != ModeTakeoff || r.armed {
			m.follow = time.Time{}
		}
		return false
	}
	if slices.Contains(m.plan, r.custom) { // rule 5
		return false
	}
	if m.settle != nil {
		if r.same(last) {
			m.settle = nil
		} else if slices.Contains(m.settle, r.custom) && r.mode != ModeRTL { // it may be a failsafe
			return false
		}
	}
	if !r.same(m.last) || m.plan != nil && !r.same(before) {
		return m.takes(r, !late || r.armed != last.armed)
	}
	return false
}

// takes shows a report that nothing explains, and passes on whether it took the
// mode: what comes after it is then no late effect of a plan.
func (m *machine) takes(r report, taken bool) bool {
	m.show(r)
	if taken {
		m.late = nil
		if m.plan != nil { // what it has sent explains nothing any more
			m.plan = []uint32{r.custom}
		}
	}
	return taken
}

// show makes the reported mode the mode: nothing that was commanded explains it.
func (m *machine) show(r report) {
	m.mode, m.last, m.order = r.mode, r, nil
	m.settle, m.follow = nil, time.Time{}
}

// lose says that the link to the autopilot was lost.
func (m *machine) lose() {
	m.lost = m.heard
	m.settle, m.follow = nil, time.Time{}
}

// restart says that the autopilot has started again: nothing that was commanded
// before stands, and a disarmed one is in its initial state (rule 2).
func (m *machine) restart() {
	m.order, m.settle, m.follow = nil, nil, time.Time{}
	m.again = m.heard
}

// begin says that a plan begins; what explains it is the mode that it finds, and
// the one that a refused plan before it is just put back to.
func (m *machine) begin(numbers []uint32) {
	m.plan = append([]uint32{m.raw.custom}, numbers...)
	if m.settle != nil && m.raw.custom != m.last.custom {
		m.plan = append(m.plan, m.last.custom)
	}
	m.settle = nil
}

// sentBy is what a waiting plan has sent, and those that it took the place of: all
// that explains it but the mode that it began in.
func sentBy(plan []uint32) []uint32 { return plan[min(1, len(plan)):] }

// expect says that a plan's step is sent now, which may show this number. Before
// it was sent the same report is somebody else's.
func (m *machine) expect(number uint32) { m.plan = append(m.plan, number) }

// refused says that the step whose copies were sent last was refused: they lead
// nowhere. Before it the plan had so many numbers.
func (m *machine) refused(number uint32, before int) {
	for n := len(m.plan); n > max(1, before) && m.plan[n-1] == number; n-- {
		m.plan = m.plan[:n-1]
	}
}

// also says that a second leg is sent now: what it leads to belongs to the order,
// acknowledged or not.
func (m *machine) also(number uint32) {
	if m.order != nil && !slices.Contains(m.order.numbers, number) {
		m.order.numbers = append(m.order.numbers, number)
	}
}

// accept says that every step of a plan was acknowledged (rule 3).
func (m *machine) accept(o order, now time.Time) {
	m.mode, m.order = o.mode, &o
	m.plan, m.settle, m.late = nil, nil, nil
	m.last = m.raw
	m.follow = now.Add(followTime)
	if slices.Contains(o.numbers, m.raw.custom) && (m.mode != ModeTakeoff || m.raw.armed) {
		m.follow = time.Time{}
	}
}

// acceptArm says that a plan that only arms or disarms was acknowledged. The
// mode is then what the next heartbeat will make of it, unless one is still to
// show what was commanded before. It tells whether that took the mode.
func (m *machine) acceptArm(armed bool) (taken bool) {
	m.plan = nil
	if m.follow.IsZero() && !m.lost && !m.again {
		r := m.raw
		r.armed = armed
		return m.report(r)
	}
	return false
}

// maybe reports whether a step was sent that leads to this number, and nobody
// knows yet whether it did.
func (m *machine) maybe(number uint32) bool {
	return slices.Contains(sentBy(m.plan), number) || slices.Contains(m.late, number)
}

// refuse says that a plan was refused: it changes nothing, and the reports that
// its first steps caused have time to pass.
func (m *machine) refuse(now time.Time) {
	if sent := sentBy(m.plan); len(sent) > 0 {
		m.settle, m.settled = sent, now.Add(followTime)
	}
	m.plan = nil
}

// awaited is the number that the autopilot acknowledged and no report has shown
// yet.
func (m *machine) awaited() (custom uint32, ok bool) {
	if m.order == nil || m.follow.IsZero() {
		return 0, false
	}
	return m.order.numbers[0], true
}

// doubt says that a plan went without an answer: nobody knows what it did, so
// whatever is reported shows. What its steps may still lead to is nobody else's.
func (m *machine) doubt(now time.Time) {
	if sent := sentBy(m.plan); len(sent) > 0 {
		m.late, m.settled = sent, now.Add(followTime)
	}
	m.plan, m.settle = nil, nil
	if m.heard && !m.explains(m.raw) && !m.raw.same(m.last) {
		m.show(m.raw)
	}
}

// perhaps reports whether a plan that was not accepted may still lead to a stick
// mode.
func (m *machine) perhaps(f firmware) bool {
	stick := func(custom uint32) bool {
		mode, _ := f.reported(custom)
		return mode.flownBySticks()
	}
	return slices.ContainsFunc(m.late, stick) || slices.ContainsFunc(m.settle, stick) || slices.ContainsFunc(sentBy(m.plan), stick)
}

// abandon ends what was commanded: the mode is the reported one.
func (m *machine) abandon() { m.show(m.raw) }

// due is when tick is to be called next; zero: nothing waits for the time.
func (m *machine) due() time.Time {
	switch {
	case m.plan != nil:
		return time.Time{}
	case m.settle != nil || m.late != nil:
		return m.settled
	}
	return m.follow
}

// tick applies rule 6 at the given time and reports whether the autopilot did
// not follow what it had acknowledged.
func (m *machine) tick(now time.Time) (gone bool) {
	if m.late != nil && !now.Before(m.settled) {
		m.late = nil
	}
	if m.settle != nil && !now.Before(m.settled) {
		m.settle = nil
		if !m.raw.same(m.last) && !m.explains(m.raw) {
			m.show(m.raw)
			return true
		}
	}
	if m.plan != nil || m.settle != nil || m.follow.IsZero() || now.Before(m.follow) {
		return false
	}
	m.show(m.raw)
	return true
}
