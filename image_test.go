package main

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"
)

var (
	imageFile = flag.String("image", "",
		"the card's image for TestTheCardFliesAndSurvivesPowerCuts; make image-test builds and names it")
	imageCuts = flag.Int("cuts", 1,
		"how often TestTheCardFliesAndSurvivesPowerCuts cuts the power at a random moment of a boot")
)

// The card is the Raspberry Pi's to the byte, with its own kernel, command line, init and mavrest.
// Only the machine differs: qemu loads the kernel instead of the Pi's firmware, and the disk and
// the network card are other ones. The UART is a PL011, as on the Pi's header.
func TestTheCardFliesAndSurvivesPowerCuts(t *testing.T) {
	if *imageFile == "" {
		t.Skip("this test needs a card's image and qemu: make image-test")
	}
	card, err := filepath.Abs(*imageFile)
	if err != nil {
		t.Fatal(err)
	}
	b := &board{T: t, card: card, folder: t.TempDir(), line: openPTY(t)}
	b.line.fly(t, runSimulator(t, simPX4))
	b.unpack()
	before := b.sum()
	defer b.pull()

	b.boot()
	took := b.online()
	b.noLogin()
	b.accepted("takeoff", `{"altitude":10}`)
	b.until("aloft at 10 m", func(s object) bool { return s["in_air"] == true && positionNear(s, "altitude", 10, 1) })
	b.accepted("goto", `{"lat":47.3980,"lon":8.5460,"altitude":20}`)
	there := func(s object) bool {
		return positionNear(s, "lat", 47.3980, 1e-5) && positionNear(s, "lon", 8.5460, 1e-5) &&
			positionNear(s, "altitude", 20, 1)
	}
	b.until("at the place", there)
	b.pull()

	for cut := range *imageCuts {
		after := rand.N(took * 3 / 2) // sometimes after it is online
		t.Logf("power cut %d: %v after power-on", cut+1, after.Round(time.Millisecond))
		b.boot()
		time.Sleep(after)
		b.pull()
	}

	b.boot()
	b.online()
	b.until("flying at the place where it was before the power cut",
		func(s object) bool { return s["armed"] == true && s["in_air"] == true && there(s) })
	b.accepted("land", "")
	b.until("landed and disarmed", func(s object) bool { return s["armed"] == false && s["in_air"] == false })
	b.pull()
	if after := b.sum(); !bytes.Equal(before, after) {
		t.Error("something wrote to the card; a power cut can damage what is written")
	}
}
