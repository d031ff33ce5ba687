package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// These flights repeat what flights with PX4's own firmware showed. flight_test.go explains the words.

// px4Clauses are the clauses that only these scripts have.
var px4Clauses = map[string]func(*player){
	"a takeover by RTL":               func(p *player) { p.px4Takeover(simPX4RTL, moment{}, func() { p.sim.pilotMode(simPX4RTL) }) },
	"a takeover by LOITER":            func(p *player) { p.px4Takeover(simPX4Loiter, moment{}, func() { p.sim.pilotMode(simPX4Loiter) }) },
	"holds in a failsafe":             func(p *player) { p.sim.change(func() { p.sim.brain.(*simPX4Brain).beginFailsafe(simPX4RTL) }) },
	"has no source of sticks":         func(p *player) { p.sim.change(func() { p.sim.brain.(*simPX4Brain).source = nil }) },
	"will show an early PREARM_CHECK": func(p *player) { p.sim.change(func() { p.sim.brain.(*simPX4Brain).glimpses = true }) },
	"our stream stops": func(p *player) {
		p.drone.mu.Lock()
		defer p.drone.mu.Unlock()
		p.drone.sticks.phase = stickOff
		p.drone.link.setSticks(nil)
	},
	"QGroundControl leaves":        func(p *player) { p.sim.change(func() { p.sim.foreignGCS = false }) },
	"QGroundControl joins":         func(p *player) { p.sim.change(func() { p.sim.foreignGCS = true }) },
	"mavrest is no ground station": func(p *player) { p.stationBeats(0, 0) },
	"mavrest is a ground station":  func(p *player) { p.stationBeats(10, 1000) },
	"checks are 5 s apart": func(p *player) {
		var last time.Time
		n := 0
		for _, r := range p.sim.received() {
			if m, ok := r.msg.(*common.MessageCommandLong); ok && m.Command == common.MAV_CMD_RUN_PREARM_CHECKS {
				if n++; r.at.Sub(last) < 5*time.Second {
					p.Errorf("two checks %v apart", r.at.Sub(last))
				}
				last = r.at
			}
		}
		if n < 2 {
			p.Errorf("%d checks", n)
		}
	},
	"the stream is unmoved": func(p *player) {
		sticks := p.sticksSince(p.mark)
		for i, s := range sticks {
			if i > 0 && s.at.Sub(sticks[i-1].at) > 100*time.Millisecond {
				p.Fatalf("the stream paused for %v", s.at.Sub(sticks[i-1].at))
			}
			if m := s.msg.(*common.MessageManualControl); *m != *sticks[0].msg.(*common.MessageManualControl) {
				p.Fatalf("the parked sticks moved: %+v", m)
			}
		}
	},
}

// stationBeats checks how many heartbeats mavrest sent as a ground station.
func (p *player) stationBeats(least, most int) {
	n := 0
	for _, r := range p.sim.received()[p.seen:] {
		if hb, ok := r.msg.(*minimal.MessageHeartbeat); ok && hb.Type == minimal.MAV_TYPE_GCS {
			n++
		}
	}
	if n < least || n > most {
		p.Errorf("%d heartbeats as a ground station, want %d to %d", n, least, most)
	}
}

// A GET in the instant of a 200 shows the new mode, and the vehicle's name for it.
func TestPX4AnswerIsWhatTheVehicleShows(t *testing.T) {
	commands := "px4:"
	for i, c := range [][3]string{
		{"takeoff", "takeoff", "AUTO.TAKEOFF"},
		{"+20s, goto 40 0", "hold", "AUTO.LOITER"},
		{"mode rtl", "rtl", "AUTO.RTL"},
		{"mode hold", "hold", "AUTO.LOITER"},
		{"mode rtgs", "rtgs", "AUTO.RTL"},
		{"mode position", "position", "POSCTL"},
		{"mode altitude", "altitude", "ALTCTL"},
		{"mode manual", "manual", "MANUAL"},
		{"land 20 0", "land", "AUTO.LOITER"},
		{"goto 40 0", "hold", "AUTO.LOITER"},
		{"land", "land", "AUTO.LAND"},
	} {
		phase := []string{"+{1s..1800ms/200ms}", "+$1"}[min(i, 1)] // the first command has the choices
		commands += fmt.Sprintf(" %s, is %s, status vehicle_mode %s, %s,", c[0], c[1], c[2], phase)
	}
	sticks := "px4: aloft, goto altitude 60 wait 120"
	for try := range 12 { // at any phase of the heartbeat; the client's first stick comes in the instant of the 200
		mode := []string{"{altitude|manual}", "$1"}[min(try, 1)] // the first try has the choices
		sticks += fmt.Sprintf(", +%dms, mode %s, truth, input pitch 0.5 throttle 0.5 timeout 1.5, stays 500ms is $1, stays 500ms truth, mode hold", 1000+83*try, mode)
	}
	flies(t, []rule{
		{"each command is answered when its mode shows", strings.TrimSuffix(commands, ",")},
		{"a stick mode stays in force", sticks},
	})
}

func TestPX4PilotsAndFailsafes(t *testing.T) {
	flies(t, []rule{
		{"a pilot's RTL is not undone by a goto that waits for still sticks", "px4: aloft, mode position, input pitch 0.15 timeout 3, +300ms, post goto 60 0, +{300ms..1800ms/300ms}, a takeover by RTL"},
		{"a pilot's hold in the middle of a climb is a takeover", "px4: post takeoff 40 wait 200, until alt > {1|8|20|31} 60s, a takeover by LOITER, is hold"},
		{"the hold at the end of a climb is not a takeover", "px4: takeoff {2.5|10|40} wait 200, is takeoff, +10s, is takeoff, in AUTO.LOITER"},
		{"a pilot's hold in a low takeoff is a takeover", "px4: takeoff 2, +1500ms, alt < 0.9, pilot AUTO.LOITER, +2s, is hold"},
		{"a low takeoff ends in PX4's own hold", "px4: takeoff 2 wait 30, +5s, is takeoff, in AUTO.LOITER"},
		{"after a restart while disarmed the mode is manual", "px4: {aloft, land wait 60, +3s, is land→200ms|aloft, mode rtl wait 60, +3s, is rtl→200ms|takeoff, pilot disarms, is takeoff→200ms|takeoff, +5s, is takeoff→200ms|aloft, heartless 900ms, pilot rtl, +200ms→1100ms}, restart grounded, +$1, stays 10s is manual, aloft"},
		{"a failsafe that holds in the present mode ends a goto that is not acknowledged", "px4{|-1.15}: aloft, mode hold, +1s, loses DO_REPOSITION, only acks, post goto 60 0, +300ms, holds in a failsafe, answer interrupted 1600ms, mark, +10s, hands off, is rtl"},
		{"a landing at a place that PX4 never acknowledges is done on the ground", "px4: aloft, loses DO_SET_MODE, land 10 0 wait 120, its done true, is land, at 10 0 0 ±2"},
		{"a goto of a vehicle that was disarmed meanwhile is interrupted", "px4: takeoff 3 wait 30, mode position, input pitch 0.5, mark, post goto 30 0, +800ms, hands off, pilot disarms, answer interrupted, hands off"},
		{"ten refused takeoffs leave PX4 disarmed in manual mode", "px4 armable=1h: " + strings.Repeat("refused refused takeoff, is manual, ", 10) + "disarmed"},
		{"a takeoff right after a flight with sticks flies", "px4: takeoff 5 wait 30, mode position, input pitch 0.2, mode hold wait 20, land wait 60, takeoff 5 wait 30, +15s, is takeoff, status failsafe false, status in_air true"},
		{"the present mode is accepted at once though a few acks are lost", "px4: loses DO_SET_MODE {0|1|2|3|4}, mode hold, took < 1001ms"},
		{"the present mode is accepted though most acks are lost", "px4: loses DO_SET_MODE {5|6|7}, mode hold"},
		{"a refused command leaves the vehicle in POSCTL, the way out of manual mode", "px4: aloft, mode manual, input throttle 0.5 pitch 1 timeout 5, fails DO_REPOSITION, refused refused goto 60 0, is position, +3s, is position, in POSCTL, speed < 0.2"},
		{"after a restart a takeoff is accepted as soon as armable is true", "px4: status armable true, restart grounded, will show an early PREARM_CHECK, until status armable null 2s, status unhealthy null, until status armable true 10s, takeoff"},
		{"after a start in flight mavrest knows the mode", "px4: aloft, stop, +1s, start, +2s, is hold"},
		{"a failsafe that only warns, which 1.14 calls CRITICAL, ends no landing", "px4-1.14: aloft, mode position, post land wait 60, until is land 5s, our stream stops, until status failsafe true 5s, answer ok"},
		{"after a takeoff that ended early it is not armed in AUTO.TAKEOFF", "px4-1.{14|16}: takeoff, {+4s, land wait 60|disarm}, +1s, is takeoff, in AUTO.TAKEOFF, arm, is hold, +8s, alt < 0.5, armed"},
		{"a PX4 1.17 leaves AUTO.TAKEOFF by itself after such a takeoff", "px4-1.17: takeoff, {+4s, land wait 60→land|disarm→hold}, +1s, is $1, not in AUTO.TAKEOFF, arm, is hold, +8s, alt < 0.5, armed"},
	}, px4Clauses)
}

// Where NAV_DLL_ACT is set, or unknown, mavrest sends no heartbeat as a ground station: PX4
// would bring the drone down when the heartbeats end.
func TestPX4AndGroundStations(t *testing.T) {
	const gps, compass = "Preflight Fail: GPS fix too low", "Preflight Fail: Compass needs calibration before it can be used for flight"
	flies(t, []rule{
		{"mavrest is no ground station where the loss of one is a failsafe", "px4 NAV_DLL_ACT={1|2|3|none} station=yes: takeoff wait 60, mode position, goto 30 0 wait 60, QGroundControl leaves, +30s, is hold, at 30 0 10 ±1, mavrest is no ground station"},
		{"mavrest stops being a ground station when NAV_DLL_ACT is set in the air", "px4: aloft, QGroundControl joins, param NAV_DLL_ACT 2, +6s, mark, +10s, mavrest is no ground station, is takeoff, param NAV_DLL_ACT 0, +15s, mavrest is a ground station, mute, +4s, mark, +10s, mavrest is no ground station"},
		{"mavrest's ground station heartbeats leave no trace in the messages", "px4: aloft, +30s, goto 30 0 wait 60, mavrest is a ground station, messages 0 ground station lost, messages 0 GCS connection regained"},
		{"a refused arming names every reason", "px4: trouble 0 " + gps + ", trouble 0 " + compass + ", +20s, mark, refused refused {takeoff|arm}, says Resolve system health failures first; " + gps + "; " + compass + ", took < 2500ms, sends 401 NaN NaN"},
		{"a refused arming for a system without a text has PX4's own sentence", "px4 trouble=BATTERY: +20s, refused refused {takeoff|arm}, says Resolve system health failures first, took < 2500ms"},
		{"a refused arming without a ground station names the unhealthy systems", "px4 NAV_DLL_ACT=2: +20s, trouble GPS " + gps + ", +{20s|1ms}, refused refused {takeoff|arm}, says unhealthy:, says gps, took < 2500ms"},
		{"the texts of the checks count for 5 s, and until a system becomes healthy", "px4: trouble GPS " + gps + ", +20s, refused refused arm, +1s, fails DO_SET_MODE, refused refused mode hold, says GPS fix too low, {+2500ms|trouble none, +1s}, refused refused mode hold, says not: GPS"},
		{"PX4 is asked to run its checks every 5 s at most, and never while armed", "px4: trouble 0 " + gps + strings.Repeat(", refused refused arm, says GPS fix too low, says not: Gimbal, text Gimbal lost, +500ms", 20) + ", checks are 5 s apart, trouble none, +5s, aloft, mark, nacks COMPONENT_ARM_DISARM, refused refused arm, refused refused disarm, not sends 401 NaN NaN"},
	}, px4Clauses)
}

// COM_RC_IN_MODE (docs/design.md, "Who has the sticks").
func TestPX4WhoseSticksCount(t *testing.T) {
	const ours = "aloft, mode position, in POSCTL, input pitch 0.5 timeout 3, status input.by client, +3s, speed > 1"
	const noSticks = "aloft, mark, refused unsupported mode position, says COM_RC_IN_MODE is $1, refused wrong_mode input pitch 0.5, says COM_RC_IN_MODE, stream nothing"
	flies(t, []rule{
		{"the client's, where there is no transmitter", "px4 COM_RC_IN_MODE={1|2|3|5|7}: " + ours},
		{"the client's, though there is a transmitter", "px4 COM_RC_IN_MODE={1|6|8} receiver=hand: " + ours},
		{"the transmitter's, where the parameter prefers them", "px4 COM_RC_IN_MODE={0|2|3|5|7} receiver=hand: aloft, mark, mode position, in POSCTL, refused wrong_mode input pitch 0.5, says COM_RC_IN_MODE, status input.by receiver, +10s, is position, stream nothing"},
		{"no sticks", "px4 COM_RC_IN_MODE={0|4}: " + noSticks},
		{"no sticks, though there is a transmitter", "px4 COM_RC_IN_MODE={4} receiver=hand: " + noSticks},
		{"no sticks and no kill switch before 1.17", "px4-1.{14|15|16} COM_RC_IN_MODE={5|8} receiver=hand: messages 1 before PX4 1.17 nobody's sticks act then, messages 1 nor a transmitter's kill switch; set it to 0, aloft, mark, refused unsupported mode position, pilot POSCTL, +1s, refused wrong_mode input pitch 0.5, says before PX4 1.17, status input.by null, stream nothing"},
		{"other versions and values bring no message about old versions", "{px4-1.14 COM_RC_IN_MODE=0|px4-1.16 COM_RC_IN_MODE=0|px4-1.17 COM_RC_IN_MODE=0|px4-1.17 COM_RC_IN_MODE=5|px4-1.17 COM_RC_IN_MODE=8} receiver=hand: aloft, messages 0 before PX4 1.17"},
		{"a message says what a transmitter loses, before the pilot needs it", "px4 COM_RC_IN_MODE={1→always|2→while these sticks come|3→until PX4 restarts|6→while these sticks come|8→while these sticks come}: messages 0 ignores a transmitter, mode altitude, +10s, mode altitude, messages 1 ignores a transmitter, messages 1 its mode switch and its kill switch $1"},
		{"with 5 a transmitter loses nothing, and no message comes", "px4 COM_RC_IN_MODE=5: mode altitude, +10s, mode altitude, messages 0 ignores a transmitter"},
		{"with 2 the sticks are kept for a transmitter that was on in this flight", "px4 COM_RC_IN_MODE=2 receiver=hand: aloft, receiver lost, +5s, mark, refused unsupported mode position, says was on in this flight, stream nothing, land wait 60, +2s, mode position"},
		{"a refused stick mode does not make ours the first source", "px4: fails DO_SET_MODE, refused refused mode altitude, has no source of sticks, +10s, receiver hand, +5s, refused wrong_mode input pitch 0.5, says COM_RC_IN_MODE is 3, says and the transmitter has the sticks"},
		{"with 5 and 7 a transmitter that comes on later has the sticks", "px4 COM_RC_IN_MODE={5|7}: aloft, mode altitude, input pitch 0.2 timeout 5, +1s, receiver hand, pilot sticks 0 300 500 0, +1100ms, refused wrong_mode input pitch 0.2, says COM_RC_IN_MODE is $1, status input.by receiver, status input.from null, mark, +15s, is altitude, hands off"},
		{"a restart of PX4 begins a new choice of the first source", "px4: mode altitude, messages 1 COM_RC_IN_MODE is 3, restart grounded, +10s, mode altitude, messages 2 COM_RC_IN_MODE is 3"},
		{"after a restart PX4 counts as old until it has sent its version", "px4: param COM_RC_IN_MODE 5, restart grounded, +10s, mode altitude, fails REQUEST_MESSAGE, restart grounded, +10s, refused unsupported mode altitude, says before PX4 1.17, status vehicle.version null"},
	}, px4Clauses)
}

// What becomes of the sticks in a stick mode, on the way out of it, and when the program ends
// (docs/design.md, "Who has the sticks"; docs/install.md).
func TestPX4AfterSticks(t *testing.T) {
	flies(t, []rule{
		{"SIGTERM leaves the vehicle to PX4's own failsafe, in a hold", "px4: aloft, goto altitude 40 wait 100, {" +
			"mode position, input pitch 1 timeout 5→0 0 500 0|mode altitude, input pitch 1 throttle 0.7 timeout 5→0 0 500 0|mode manual, input pitch 0.4 throttle 0.55 timeout 5→0 0 550 0|" +
			"mode position, input pitch 1 timeout 0.5, mode hold→0 0 500 0|mode position, input pitch 0.3 timeout 5, +2500ms, pilot AUTO.LOITER, +1500ms→300 0 500 0}, " +
			"+500ms, stop, +100ms, sticks $1, hands off, +2s, in AUTO.LOITER, failing, +5s, in AUTO.RTL"},
		{"the stream goes on unmoved from a client's last stick to the disarming", "px4: aloft, mode altitude, input pitch 0.2, +1s, goto 30 0 altitude 20, mark, +60s, is hold, at 30 0 20, the stream is unmoved, land, until disarmed 60s, +2s, mark, +5s, stream nothing"},
		{"sticks are centred first only in the air, only where ours fly, and not before an arming", "px4: {mode manual, mark, mode hold, sent 176 1 4|aloft, pilot ALTCTL, +3s, mark, mode hold, sent 192 -1 1|aloft, mode position, mode hold, +1s, mark, mode altitude, took < 1s, sent 176 1 2|aloft, mode position, input pitch 0.3 timeout 5, +1s, mark, mode altitude, took < 1s, sent 176 1 2|aloft, mode manual, input pitch 0.1 throttle 0.55 timeout 5, +500ms, mark, arm, +200ms, sent 400 1 0, stream 100 0 550 0}"},
		{"without a position sticks come to rest in ALTCTL", "px4: aloft, mode manual, stops 33, input throttle 0.5 timeout 5, +2500ms, mark, land, sends 176 1 2"},
		{"a pilot's switch ends the client's sticks that undid it", "px4: aloft, mode {position|altitude}, moves 2s, pilot {AUTO.RTL|AUTO.LAND|AUTO.LOITER}, moves 1s, its code wrong_mode, took < 201ms, +100ms, in POSCTL, messages 1 undid the pilot's switch to $2, messages 1 COM_RC_OVERRIDE 0, +1600ms, hands off, is position, sticks 0 0 500 0, +5s, hands off, is position, pilot $2, +5s, truth, in $2"},
		{"with COM_RC_OVERRIDE 0 nothing is undone, and the sticks still come to rest first", "px4 COM_RC_OVERRIDE=0: aloft, mode {position|altitude}, moves 1s, mode hold, +3s, in AUTO.LOITER, mode position, moves 1s, pilot AUTO.RTL, moves 1s, +3s, in AUTO.RTL, messages 0 undid, mode position, input pitch 0.5 timeout 5, pilot AUTO.RTL, +1s, mode altitude, not took < 2s, sent 176 1 3 | 176 1 2"},
	}, px4Clauses)
}

func TestPX4HoldIsWhereItCanStop(t *testing.T) {
	flies(t, []rule{
		{"from a goto", "px4: aloft, goto 500 0 {speed 2, +8s, speed > 1.7, speed < 2.3→1|speed 5, +8s, speed > 4.7, speed < 5.3→2.13|speed 8, +8s, speed > 7.7, speed < 8.3→5.44|speed 12, +8s, speed > 11.7, speed < 12.3→12.24}, mode hold, comes back north < $1, speed < 0.1, is hold, done"},
		{"from a climb", "px4: aloft, {goto altitude 60|takeoff 80}, +8s, speed < 0.3, mode hold, comes back up < 1, speed < 0.1, is hold, done"},
		{"from a return", "px4: aloft, goto -200 0 altitude 40 wait 200, mode rtl, +8s, speed > 4.7, speed < 5.3, mode hold, comes back north < 2.13, speed < 0.1, is hold, done"},
	})
}

func TestAVersionThatWasNeverFlownIsLoggedOnce(t *testing.T) {
	for v, want := range map[uint32]int{1<<24 | 13<<16: 1, 1<<24 | 14<<16: 0, 1<<24 | 17<<16 | 5<<8: 0, 1<<24 | 18<<16: 1} {
		fly(t, simPX4, func(s *simulator) { s.version = v }, func(f *flight) {
			log := logLines(t)
			f.sim.reboot(false)
			time.Sleep(20 * time.Second)
			if n := strings.Count(log(), "never flown on this version"); n != want {
				t.Errorf("%#x is logged %d times, want %d", v, n, want)
			}
		})
	}
}

var px4PilotModes = []uint32{
	simPX4Manual, simPX4Altctl, simPX4Posctl, simPX4Loiter, simPX4RTL, simPX4Land, simPX4Stabilized,
}

// px4Visits returns PX4's moments, except those that a test leaves out.
func px4Visits(leaveOut func(m moment) bool) (visits []visit) {
	for _, m := range moments {
		if m.px4 != "" && (leaveOut == nil || !leaveOut(m)) {
			visits = append(visits, visit{moment: m})
		}
	}
	return visits
}

// px4Takeover lets somebody other than the client set a mode. It checks what follows while no
// client asks for anything.
func (p *player) px4Takeover(custom uint32, m moment, setMode func()) {
	p.Helper()
	before, streaming := p.streamed()
	began := time.Now()
	setMode()
	at := p.reported(custom, began, 1100*time.Millisecond)
	p.plays("truth")
	soon := time.Millisecond
	if m.waiting { // the command waits for the vehicle to follow its last step
		soon = showWithin + time.Millisecond
	}
	p.plays("no input")
	p.wantAnswer(soon+takenAfter, "interrupted")
	if done := p.status()["done"]; done != nil {
		p.Errorf("done is %v", done)
	}
	time.Sleep(12 * time.Second)
	p.wantHandsOff(at)
	p.plays("truth")
	if !streaming {
		p.wantStream(at.Add(time.Millisecond), nil)
		return
	}
	want := before // unmoved where no sticks fly
	if mode, _ := px4.reported(custom); mode == ModeManual {
		want = axes{z: before.z} // centred, except for the throttle
	} else if mode.flownBySticks() {
		want = axes{z: 500}
	}
	p.wantStream(at.Add(time.Millisecond), &want)
}

func TestPX4PilotsSwitchIsATakeoverAtEveryMoment(t *testing.T) {
	var cases []visit
	for _, custom := range px4PilotModes {
		for _, v := range px4Visits(func(m moment) bool {
			return slices.Contains(m.explained, custom) || slices.Contains(m.undone, custom)
		}) {
			v.custom = custom
			cases = append(cases, v)
		}
	}
	some := sampled(t, cases, len(cases)/3, func(v visit) any { return v.name }, func(v visit) any { return [2]any{v.mode, v.custom} })
	atMoments(t, simPX4, some, nil, func(p *player, v visit) {
		p.px4Takeover(v.custom, v.moment, func() { p.sim.pilotMode(v.custom) })
	})
}

// A pilot who sets the commanded mode, or the mode before it, looks like the command itself. So
// the command goes on.
func TestPX4PilotsSwitchToTheCommandedModeEndsNothing(t *testing.T) {
	for _, custom := range px4PilotModes {
		_, name := px4.reported(custom)
		t.Run(name, func(t *testing.T) {
			visits := px4Visits(func(m moment) bool { return !slices.Contains(m.explained, custom) })
			atMoments(t, simPX4, visits, nil, func(p *player, m visit) {
				p.sim.pilotMode(custom)
				p.wantAnswer(5*time.Minute, "any")
				code := p.answer["code"] // nil: accepted
				pilotsMode, _ := px4.reported(custom)
				neverEntered := m.acked && pilotsMode.String() != m.mode // the pilot's mode replaced the acknowledged one
				neverArmed := m.disarmed && custom != simPX4Loiter       // a takeoff arms in AUTO.LOITER
				switch {
				case neverEntered || neverArmed:
					if code == nil {
						p.Errorf("answered %v", p.answer)
					}
					p.plays("truth")
					return
				case code == "interrupted" && strings.HasSuffix(m.name, "before POSCTL is in force"):
					p.plays("truth") // CURRENT_MODE had shown the commanded mode
					return
				case code != nil:
					p.Errorf("answered %v", p.answer)
				}
				commanded, _ := parseMode(m.mode)
				if commanded.flownBySticks() && custom == entered[px4][commanded] {
					time.Sleep(1100 * time.Millisecond) // a silent client's hold comes later
					p.wantMode(m.mode)
					return
				}
				time.Sleep(followTime + 2*time.Second) // until mavrest gives up the command that the pilot undid
				if m.waiting && p.sim.truth().mode == custom {
					p.plays("truth")
				} else {
					p.wantMode(m.mode)
				}
			})
		})
	}
}

func TestPX4FailsafeIsATakeoverAtEveryMoment(t *testing.T) {
	visits := px4Visits(func(m moment) bool {
		return m.disarmed || slices.Contains(m.undone, simPX4RTL) || m.waiting && slices.Contains(m.explained, simPX4RTL)
	})
	atMoments(t, simPX4, visits, nil, func(p *player, m visit) {
		p.px4Takeover(simPX4RTL, m.moment, p.sim.failsafeReturn)
		if o := p.status(); o["failsafe"] != o["armed"] {
			p.Errorf("failsafe is %v", o["failsafe"])
		}
	})
}

// After a restart in flight no earlier command is in force.
func TestPX4RestartEndsEverythingAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Visits(nil), nil, func(p *player, m visit) {
		p.sim.reboot(true)
		time.Sleep(200 * time.Millisecond)
		at := time.Now()
		p.wantAnswer(showWithin, "interrupted")
		if m.disarmed {
			p.wantMode("manual")
		} else {
			p.plays("truth")
			p.plays("no input")
		}
		time.Sleep(12 * time.Second)
		p.wantHandsOff(at)
		p.wantStream(at, nil)
	})
}

// A pilot moves his transmitter's sticks in a mode that flies without sticks. PX4 then sets POSCTL.
func TestPX4TransmittersSticksAreATakeoverAtEveryMoment(t *testing.T) {
	hand := func(s *simulator) {
		s.params[simStickSource] = 5
		s.receiver, s.rc = simReceiverInHand, [4]int16{0, 0, 500, 0}
	}
	visits := px4Visits(func(m moment) bool {
		mode, _ := parseMode(m.mode)
		return m.waiting || mode.flownBySticks() || m.silent
	})
	atMoments(t, simPX4, visits, hand, func(p *player, m visit) {
		p.px4Takeover(simPX4Posctl, m.moment, func() { p.sim.pilotSticks(600, 0, 500, 0) })
	})
}

// Arming ends no manoeuvre. It supersedes commands that are not answered yet, except for a
// landing, a return and a hold. A disarming in the air is refused and ends nothing.
func TestPX4SecondClientsArmingEndsOnlyUnansweredCommands(t *testing.T) {
	for _, c := range []struct {
		name    string
		command func(p *player)
	}{
		{"arming", func(p *player) { p.accepted("/mode", `{"arm":true}`) }},
		{"refused disarming", func(p *player) { p.refused("/mode", `{"arm":false}`, 409, "refused") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			visits := px4Visits(func(m moment) bool {
				return m.disarmed || m.name == "takeoff, armed and on the ground" || // a disarming is accepted there
					m.name == "goto, between its ack and its mode" // the goto is answered before the arming's turn
			})
			atMoments(t, simPX4, visits, nil, func(p *player, m visit) {
				c.command(p)
				urgent := slices.Contains([]string{"hold", "land", "rtl"}, strings.Fields(m.name)[0])
				switch {
				case m.waiting && c.name == "arming" && !urgent:
					p.wantAnswer(giveUp, "superseded")
					time.Sleep(7 * time.Second)
					p.plays("truth")
				case m.silent:
					time.Sleep(7 * time.Second)
					p.wantMode("hold")
				default:
					if !m.waiting {
						p.wantMode(m.mode)
					}
					p.wantAnswer(5*time.Minute, "")
					p.wantMode(m.mode)
				}
			})
		})
	}
}

// For 5 s the vehicle is not heard. It goes on with its manoeuvre. When it is heard again mavrest sends
// only the landing of a vehicle that has come to its place. A silent client gets no hold.
func TestPX4LostLinkAtEveryMoment(t *testing.T) {
	atMoments(t, simPX4, px4Visits(nil), nil, func(p *player, m visit) {
		began := time.Now()
		p.sim.change(func() { p.sim.muted = true })
		time.Sleep(5 * time.Second)
		if p.status()["online"] != false {
			p.Error("still online")
		}
		p.sim.change(func() { p.sim.muted = false })
		if list := commandsOf(p.since(began)); len(list) > 0 {
			p.Errorf("sent to a vehicle that is not heard: %q", list)
		}
		back := time.Now()
		time.Sleep(1100 * time.Millisecond)
		if list := commandsOf(p.since(back)); len(list) > 0 && m.name != "land at a place, at the place" {
			p.Errorf("sent after the vehicle was heard again: %q", list)
		}
		switch {
		case m.acked: // an ack alone is no answer
			p.wantAnswer(time.Millisecond, "no_ack")
			p.wantMode(m.mode)
		case m.waiting:
			p.wantAnswer(time.Millisecond, "no_ack")
			if p.sim.truth().armed { // if disarmed, the first report changes nothing (docs/design.md, rule 1)
				p.plays("truth")
			}
		case m.silent:
			p.wantMode("position")
		default:
			p.wantMode(m.mode)
			p.wantAnswer(5*time.Minute, "") // its client still waits
		}
	})
}
