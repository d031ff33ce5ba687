package main

import (
	"math"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
)

func TestSimQuadHasATopSpeed(t *testing.T) {
	for flavour, modes := range map[simFlavour][]uint32{simPX4: {simPX4Altctl, simPX4Manual}, simArduPilot: {2, simArduStabilize}} {
		for _, mode := range modes {
			simFlight(t, flavour, nil, func(b *simBoard) {
				time.Sleep(6 * time.Second)
				b.placeInAir(200)
				b.as(255, 190)
				z := int16(500)
				if flavour == simPX4 && mode == simPX4Manual {
					z = 550
				}
				b.stick(400*time.Millisecond, sim25Hz, 0, 0, z, 0)
				b.setMode(mode)
				b.stick(40*time.Second, sim25Hz, 1000, 0, z, 0)
				b.near("speed", math.Hypot(b.truth().vn, b.truth().ve), 19.5, 1)
			})
		}
	}
}

func TestPX4StopsInItsOwnTime(t *testing.T) {
	simOnPX4(t, func(b *simBoard) {
		for _, v := range []float64{3, 8, 10} {
			b.placeInAir(10)
			b.change(func() { b.quad.vn = v; b.stay() })
			time.Sleep(20 * time.Second)
			n, _, _ := b.place()
			b.near("metres to the stop", n, v*v/3.5, 0.5)
		}
	})
}

func TestSimRestartForgetsAllButTheParameters(t *testing.T) {
	for _, flavour := range []simFlavour{simPX4, simArduPilot} {
		simFlight(t, flavour, nil, func(b *simBoard) {
			time.Sleep(6 * time.Second)
			b.change(func() { b.params["OWN"] = 7 })
			b.long(common.MAV_CMD_SET_MESSAGE_INTERVAL, 245, 20000)
			b.placeInAir(10)
			b.failsafeReturn()
			b.reboot(true)
			b.want("failsafe", b.truth().failsafe, false)
			b.forget()
			time.Sleep(2 * time.Second)
			if n := b.count(245); n > 3 {
				t.Errorf("%d messages at a rate of before", n)
			}
			b.want("parameter", b.params["OWN"], 7.0)
			b.reboot(false)
			b.want("mode", b.truth().mode, b.first)
		})
	}
}
