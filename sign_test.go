package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
	"github.com/bluenviron/gomavlib/v3/pkg/frame"
	"github.com/bluenviron/gomavlib/v3/pkg/message"
)

var ourKey, theirKey = signKey(sha256.Sum256([]byte("blue kite"))), signKey(sha256.Sum256([]byte("red kite")))

// signs flies a vehicle that signs with theirs, where that is not nil, and a mavrest with ours. The clock of the bubble
// is in the year 2000, as that of a board without a battery.
func signs(t *testing.T, theirs, ours *signKey, do func(f *flight)) {
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) {
			flyWith(t, flavour, func(s *simulator) {
				if theirs != nil {
					s.sign(*theirs)
				}
			}, func(d *drone) {
				if ours != nil {
					d.link.signing = newSigning(*ours)
				}
			}, do)
		})
	}
}

// linkError is what the status says of the link.
func (f *flight) linkError() string {
	words, _ := f.status()["link"].(object)["error"].(string)
	return words
}

// dropped is how many frames the vehicle did not take.
func (f *flight) dropped() (n int) {
	f.sim.change(func() { n = f.sim.signature.dropped })
	return n
}

func TestAVehicleThatSignsIsFlownWithItsKey(t *testing.T) {
	signs(t, &ourKey, &ourKey, func(f *flight) {
		f.accepted("/takeoff", `{"altitude":10,"wait":60}`)
		f.accepted("/goto", "{"+at(20, 0)+`,"wait":60}`)
		if f.firmware == px4 {
			f.accepted("/mode", `{"mode":"position"}`)
			f.accepted("/input", `{"pitch":0.5}`)
		}
		f.accepted("/land", `{"wait":60}`)
		lineEqual(t, "frames that the vehicle dropped", f.dropped(), 0)
		lineEqual(t, "error", f.linkError(), "")
	})
}

// Each vehicle and each program forgets by a restart what it knew of stamps. What must grow grows all the same,
// without a clock too.
func TestASignedFlightGoesOnBehindARestart(t *testing.T) {
	for name, restart := range map[string]func(f *flight){
		"the vehicle's": func(f *flight) { f.sim.reboot(true) },
		"mavrest's": func(f *flight) {
			f.stop()
			f.anew()
		},
		"mavrest's, whose stamps are ahead": func(f *flight) {
			f.stop()
			f.anew()
			l := f.drone.link
			l.mu.Lock()
			defer l.mu.Unlock()
			l.signing.sent += 1000
		},
	} {
		t.Run(name, func(t *testing.T) {
			signs(t, &ourKey, &ourKey, func(f *flight) {
				f.aloft()
				time.Sleep(time.Minute)
				restart(f)
				f.until("it is heard", 5*time.Second, func() bool { return f.status()["online"] == true })
				time.Sleep(3 * time.Second)
				lineEqual(t, "error", f.linkError(), "")
				f.until("it is proven", 5*time.Second, func() bool { return f.status()["armable"] != nil })
				f.accepted("/land", `{"wait":90}`)
			})
		})
	}
}

// It starts again, and counts from its key's stamp again: nothing of it is taken until it has heard ours there.
func TestAVehicleThatSignsAndStartsAgainAtAnotherAddressIsFollowed(t *testing.T) {
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) {
			flyOnUDP(t, flavour, func(s *simulator) { s.sign(ourKey) }, func(f *flight, n *network) {
				time.Sleep(time.Minute)
				f.sim.reboot(false)
				n.at(f.T, f.sim, atNewPort)
				time.Sleep(5 * time.Second)
				f.until("it is heard there", 15*time.Second, func() bool {
					return f.status()["armable"] == true && f.linkError() == ""
				})
				f.accepted("/takeoff", `{"altitude":10,"wait":60}`)
			})
		})
	}
}

func TestTheStatusSaysWhatIsWrongWithTheSignatures(t *testing.T) {
	for _, c := range []struct {
		name         string
		theirs, ours *signKey
		prepare      func(f *flight)
		words        string
	}{
		{"the vehicle does not sign", nil, &ourKey, nil, "its frames are not signed"},
		{"MAVLink 1", nil, &ourKey, func(f *flight) {
			f.sim.change(func() { f.sim.switches().mavlink1 = true })
		}, "MAVLink 1, which can't be signed"},
		{"another key", &theirKey, &ourKey, nil, "signed with another key"},
		{"no key here", &theirKey, nil, nil, "start mavrest with -sign"},
	} {
		t.Run(c.name, func(t *testing.T) {
			signs(t, c.theirs, c.ours, func(f *flight) {
				if c.prepare != nil {
					c.prepare(f)
				}
				time.Sleep(15 * time.Second)
				code, answer := f.call("POST", "/takeoff", `{"altitude":10}`)
				if code == 200 {
					t.Errorf("a takeoff is %d %v", code, answer)
				}
				if !strings.Contains(f.linkError(), c.words) {
					t.Errorf("error is %q, want %q", f.linkError(), c.words)
				}
				if armable := f.status()["armable"]; armable == true {
					t.Errorf("armable is %v", armable)
				}
				if c.ours != nil {
					// A heartbeat a second is all that goes out.
					if sent := f.status()["link"].(object)["sent"].(float64); sent > 27 {
						t.Errorf("%v frames were sent in 25 s", sent)
					}
					if !strings.Contains(answer["error"].(string), c.words) {
						t.Errorf("the answer is %v, want %q", answer, c.words)
					}
				}
			})
		})
	}
}

// A ground station sets a key while mavrest runs without one.
func TestAKeyThatIsSetInFlightIsSaid(t *testing.T) {
	signs(t, nil, nil, func(f *flight) {
		time.Sleep(10 * time.Second)
		lineEqual(t, "armable", f.status()["armable"], any(true))
		f.sim.sign(theirKey)
		f.until("the status says it", 15*time.Second, func() bool {
			return strings.Contains(f.linkError(), "start mavrest with -sign")
		})
		lineEqual(t, "armable", f.status()["armable"], any(false))
	})
}

// signedFrame is a frame as gomavlib signs it.
func signedFrame(m message.Message, key signKey, link byte, stamp uint64, change ...func(b []byte)) rawFrame {
	raw := dialectRW.GetMessage(m.GetID()).Write(m, true)
	f := &frame.V2Frame{IncompatibilityFlag: frame.V2FlagSigned, SystemID: 1, ComponentID: 1, Message: raw,
		SignatureLinkID: link, SignatureTimestamp: stamp}
	f.Checksum = f.GenerateChecksum(dialectRW.GetMessage(m.GetID()).CRCExtra())
	k := frame.V2Key(key)
	f.Signature = f.GenerateSignature(&k)
	var out bytes.Buffer
	w := frame.Writer{ByteWriter: &out, DialectRW: dialectRW}
	if err := w.Initialize(); err != nil {
		panic(err)
	}
	if err := w.Write(f); err != nil {
		panic(err)
	}
	b := out.Bytes()
	for _, c := range change {
		c(b)
	}
	return rawOf(b)
}

// rawOf reads one frame.
func rawOf(b []byte) rawFrame {
	d := deframer{rest: b}
	f, _ := d.next()
	return f
}

// unsignedFrame is a frame as mavrest's sender writes it without a key.
func unsignedFrame(system, component byte, m message.Message) rawFrame {
	b, _ := newSender(system, component).encode(m)
	return rawOf(b)
}

func TestOnlyWhatIsSignedRightAndNewIsTaken(t *testing.T) {
	beat := px4Beat()
	const minute = 60 * 100000
	at := func(stamp uint64) rawFrame { return signedFrame(beat, ourKey, 3, stamp) }
	other := func(stamp uint64) rawFrame { return signedFrame(beat, ourKey, 4, stamp) }
	wrong := signedFrame(&common.MessageRadioStatus{}, theirKey, 3, 5)
	flip := func(i int) func(b []byte) { return func(b []byte) { b[len(b)-i] ^= 1 } }
	radio := unsignedFrame(51, 68, &common.MessageRadioStatus{})
	plain := unsignedFrame(1, autopilotID, beat)
	old := plain
	old.v2 = false
	var many []rawFrame
	for link := range byte(mostStreams) {
		many = append(many, signedFrame(beat, ourKey, link, 5))
	}
	after := func(frames []rawFrame, last rawFrame) []rawFrame { return append(slices.Clone(frames), last) }
	for name, c := range map[string]struct {
		frames []rawFrame
		last   refusal
	}{
		"signed":                         {[]rawFrame{at(5)}, notRefused},
		"not signed":                     {[]rawFrame{plain}, unsigned},
		"MAVLink 1":                      {[]rawFrame{old}, unsignable},
		"another key":                    {[]rawFrame{signedFrame(beat, theirKey, 3, 5)}, otherKey},
		"the signature's last bit":       {[]rawFrame{signedFrame(beat, ourKey, 3, 5, flip(1))}, otherKey},
		"the signature's first bit":      {[]rawFrame{signedFrame(beat, ourKey, 3, 5, flip(6))}, otherKey},
		"another stamp than signed":      {[]rawFrame{signedFrame(beat, ourKey, 3, 5, flip(7))}, otherKey},
		"another link than signed":       {[]rawFrame{signedFrame(beat, ourKey, 3, 5, flip(13))}, otherKey},
		"the same again":                 {[]rawFrame{at(5), at(5)}, oldStamp},
		"an older one":                   {[]rawFrame{at(5), at(4)}, oldStamp},
		"one that is 295 older":          {[]rawFrame{at(300), at(5)}, oldStamp},
		"a first one that counts from 0": {[]rawFrame{at(0)}, notRefused},
		"a slow stream that goes on":     {[]rawFrame{at(5), other(2 * minute), at(6)}, notRefused},
		"a 64th stream":                  {many, notRefused},
		"a 65th stream":                  {after(many, signedFrame(beat, ourKey, 64, 5)), oldStamp},
		"the first of 64 goes on":        {after(many, signedFrame(beat, ourKey, 0, 6)), notRefused},
		"a newer one":                    {[]rawFrame{at(5), at(6)}, notRefused},
		"one far ahead":                  {[]rawFrame{at(5), at(5 + 9*minute)}, notRefused},
		"another stream, a minute old":   {[]rawFrame{at(2 * minute), other(minute)}, notRefused},
		"another stream, older":          {[]rawFrame{at(2 * minute), other(minute - 1)}, oldStamp},
		"a radio's report of its own":    {[]rawFrame{radio}, notRefused},
		"a radio's report, wrong signed": {[]rawFrame{wrong}, otherKey},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSigning(ourKey)
			var got refusal
			for _, f := range c.frames {
				got = s.hear(f, time.Unix(0, 0))
			}
			lineEqual(t, "refusal", got, c.last)
			lineEqual(t, "counted", s.refused, map[bool]uint64{false: 1}[c.last == notRefused])
		})
	}
}

func TestWhyAnAutopilotIsIgnoredIsSaidWhileItIs(t *testing.T) {
	beat, radio := px4Beat(), &common.MessageRadioStatus{}
	type frames []rawFrame
	plain, signed := unsignedFrame(1, autopilotID, beat), signedFrame(beat, ourKey, 3, 5)
	camera := signedFrame(beat, ourKey, 3, 5)
	camera.component = 100
	unknown := plain
	unknown.known = nil
	for _, c := range []struct {
		what  string
		heard frames // one a second
		wait  time.Duration
		says  string
	}{
		{"nothing", nil, 0, ""},
		{"an autopilot that does not sign", frames{plain}, 2999 * time.Millisecond, "not signed"},
		{"that was 3 s ago", frames{plain}, 3 * time.Second, ""},
		{"it signs now", frames{plain, signed}, 0, ""},
		{"it signs no more", frames{signed, plain}, 2 * time.Second, "not signed"},
		{"it signs no more, at once", frames{signed, plain}, time.Second, ""},
		{"a camera that does not sign", frames{unsignedFrame(1, 100, beat)}, 0, ""},
		{"a message that mavrest does not know", frames{unknown}, 0, ""},
		{"a camera beside it signs", frames{plain, camera}, 0, "not signed"},
		{"a radio has its ids", frames{plain, unsignedFrame(1, autopilotID, radio)}, 0, "not signed"},
	} {
		s, now := newSigning(ourKey), time.Unix(0, 0)
		for i, f := range c.heard {
			now = time.Unix(int64(i), 0)
			s.hear(f, now)
		}
		if err := s.fault(now.Add(c.wait)); (err == nil) != (c.says == "") ||
			!strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: says %v, want %q", c.what, err, c.says)
		}
	}
}

func TestTheStampOnlyGrows(t *testing.T) {
	right := time.Date(2027, 3, 1, 12, 0, 0, 0, time.UTC)
	// In units of 10 µs since 2015.
	of := func(at time.Time) uint64 { return uint64(at.Unix()-1_420_070_400) * 100_000 }
	s := newSigning(ourKey)
	for _, c := range []struct {
		what  string
		now   time.Time
		heard uint64
		want  uint64
	}{
		{"no clock, the vehicle's stamp", time.Unix(3, 0), 700, 701},
		{"no clock, again", time.Unix(3, 0), 700, 702},
		{"the vehicle counts on", time.Unix(4, 0), 900, 901},
		{"the clock is set", right, 900, of(right)},
		{"the clock stands", right, 900, of(right) + 1},
		{"the clock goes back an hour", right.Add(-time.Hour), 900, of(right) + 2},
		{"the clock is lost", time.Unix(9, 0), 900, of(right) + 3},
		{"the clock is ahead by decades", right.AddDate(40, 0, 0), 900, of(right) + 4},
		{"the vehicle is ahead", right, of(right) + 5000, of(right) + 5001},
	} {
		s.heard = c.heard
		b := s.sign([]byte{0xfd, 0, 1, 0, 0, 1, 193, 0, 0, 0, 0, 0}, c.now)
		var stamp uint64
		for i, x := range b[13:19] {
			stamp |= uint64(x) << (8 * i)
		}
		lineEqual(t, c.what, stamp, c.want)
		lineEqual(t, c.what+": link id", b[12], 0)
	}
	for _, c := range []struct {
		at    time.Time
		right bool
	}{
		{time.Date(2026, 10, 31, 23, 59, 59, 0, time.UTC), false}, {time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), true},
		{time.Date(2041, 11, 1, 0, 0, 0, 0, time.UTC), true}, {time.Date(2041, 11, 1, 0, 0, 1, 0, time.UTC), false},
	} {
		lineEqual(t, fmt.Sprint("the clock's stamp on ", c.at), clockStamp(c.at), of(c.at)*uint64(b2i(c.right)))
	}
}

// What another implementation signs and reads is what mavrest does.
func TestASignatureIsThatOfMAVLink(t *testing.T) {
	key := frame.V2Key(ourKey)
	dice := rand.New(rand.NewPCG(1, 2))
	for _, m := range dialectRW.Dialect.Messages {
		s := newSigning(ourKey)
		s.heard = dice.Uint64N(1 << 47)
		from := newSender(7, componentID)
		from.flags = frame.V2FlagSigned
		b, _ := from.encode(m)
		b = s.sign(b, time.Unix(0, 0))
		r := frame.Reader{BufByteReader: bufio.NewReader(bytes.NewReader(b)), DialectRW: dialectRW, InKey: &key}
		if err := r.Initialize(); err != nil {
			t.Fatal(err)
		}
		f, err := r.Read()
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		lineEqual(t, "stamp", f.(*frame.V2Frame).SignatureTimestamp, s.sent)
		lineEqual(t, "taken", newSigning(ourKey).judge(signedFrame(m, ourKey, 1, 9)), notRefused)
	}
}

// Before a stamp was heard on the port that is open, what a vehicle would drop is not sent.
func TestBeforeTheVehiclesStampOnlyAHeartbeatGoesOut(t *testing.T) {
	s := newSigning(ourKey)
	command, beat := &common.MessageCommandLong{}, &minimal.MessageHeartbeat{}
	lineEqual(t, "a command", s.holds(command), true)
	lineEqual(t, "a heartbeat", s.holds(beat), false)
	s.hear(signedFrame(px4Beat(), ourKey, 0, 50), time.Now())
	lineEqual(t, "a command behind a stamp", s.holds(command), false)
	s.opened()
	lineEqual(t, "a command behind a change of port", s.holds(command), true)
	lineEqual(t, "without a key", (*signing)(nil).holds(command), false)
}

// The key is set by a ground station: mavrest does not even know the message.
func TestMavrestCantSetAKey(t *testing.T) {
	lineEqual(t, "SETUP_SIGNING", codecOf((&common.MessageSetupSigning{}).GetID()) == nil, true)
}

func TestTheKeysFile(t *testing.T) {
	phrase := signKey(sha256.Sum256([]byte("blue kite")))
	digits := signKey(sha256.Sum256([]byte("12345678")))
	longer := signKey(sha256.Sum256([]byte(hex.EncodeToString(phrase[:]) + "no")))
	longest := signKey(sha256.Sum256([]byte(strings.Repeat("x", 4096))))
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		key  *signKey
		says string
	}{
		"a passphrase":                 {"blue kite", 0o600, &phrase, ""},
		"a line":                       {"blue kite\n", 0o400, &phrase, ""},
		"a line of Windows":            {"\ufeffblue kite\r\n", 0o600, &phrase, ""},
		"64 hex digits":                {hex.EncodeToString(phrase[:]) + "\n", 0o600, &phrase, ""},
		"64 hex digits, capitals":      {strings.ToUpper(hex.EncodeToString(phrase[:])), 0o600, &phrase, ""},
		"66 digits, not all hex":       {hex.EncodeToString(phrase[:]) + "no", 0o600, &longer, ""},
		"a passphrase of hex digits":   {"12345678", 0o600, &digits, ""},
		"as long as it may be":         {strings.Repeat("x", 4096), 0o600, &longest, ""},
		"empty":                        {"\n", 0o600, nil, "it is empty; want one line"},
		"several lines":                {"blue\nkite\n", 0o600, nil, "it has several lines"},
		"no text":                      {"\xff\xfe", 0o600, nil, "no text in UTF-8"},
		"long":                         {strings.Repeat("x", 5000), 0o600, nil, "too long for a key"},
		"the group may read it":        {"blue kite", 0o640, nil, "(mode 0640): chmod 600 "},
		"all may read it":              {"blue kite", 0o604, nil, "(mode 0604): chmod 600 "},
		"of the service manager's own": {"blue kite", 0o440, nil, "(mode 0440): chmod 600 "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "key")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(file, c.mode); err != nil {
				t.Fatal(err)
			}
			key, err := readKey(file, "")
			switch {
			case c.key != nil && (err != nil || key != *c.key):
				t.Errorf("%v, %x", err, key)
			case c.key == nil && (err == nil || !strings.Contains(err.Error(), "-sign "+file+": ") ||
				!strings.Contains(err.Error(), c.says)):
				t.Errorf("%v, want %q", err, c.says)
			}
			other, otherErr := readKey(file, t.TempDir())
			lineEqual(t, "its key, beside the service manager's folder", other, key)
			lineEqual(t, "its error, beside that folder", fmt.Sprint(otherErr), fmt.Sprint(err))
			t.Chdir(dir)
			here, hereErr := readKey("key", "")
			lineEqual(t, "its key, by the name alone", here, key)
			lineEqual(t, "its error, by the name alone", hereErr == nil, err == nil)
			if _, err := readKey("key", dir); c.mode == 0o440 && err != nil {
				t.Errorf("a credential: %v", err)
			}
		})
	}
	if _, err := readKey(t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "want a file with the key") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := readKey("/does/not/exist", ""); err == nil || err.Error() !=
		"-sign /does/not/exist: no such file or directory" {
		t.Errorf("none: %v", err)
	}
}
