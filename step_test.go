package main

import "testing"

// TestSetModeAsksForTheModeThatItNames: the mode that a step sets is reported by the name
// that the request had.
func TestSetModeAsksForTheModeThatItNames(t *testing.T) {
	for _, f := range []firmware{px4, copter, quadPlane, plane} {
		for m, custom := range entered[f] {
			s := f.setMode(m, custom)
			sent := uint32(s.p[1])
			if f == px4 {
				sent = px4Custom(uint32(s.p[1]), uint32(s.p[2]))
			}
			if s.to == nil || s.to.mode != m || s.to.number != custom || sent != custom || s.p[0] != 1 {
				t.Errorf("firmware %d, %v: sets %d, leads to %+v, want %d", f, m, sent, s.to, custom)
			}
			shows, _ := f.reported(custom)
			switch {
			case m == ModeRTGS && shows == ModeRTL, m == ModeTakeoff && shows == ModeHold: // one number for both modes
			case shows != m:
				t.Errorf("firmware %d: the mode that is set for %v is reported as %v", f, m, shows)
			}
		}
	}
}
