package main

// A port with many addresses, on virtual time, with simulated autopilots at some of them.

import (
	"bytes"
	"context"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gomavlib/v3/pkg/dialects/common"
	"github.com/bluenviron/gomavlib/v3/pkg/dialects/minimal"
)

// network is a port at which many addresses are heard.
type network struct {
	in chan datagram

	mu    sync.Mutex // guards what is below
	diary *diary     // nil before the flight begins
	ends  map[netip.AddrPort]io.ReadWriteCloser
}

type datagram struct {
	from  netip.AddrPort
	bytes []byte
}

// networkPort is one opening of the network.
type networkPort struct {
	*network
	noDeadlines
	emptied
	from  netip.AddrPort
	until time.Time
	gone  chan struct{}
	once  sync.Once
}

// tell writes into the flight's diary what went over the network.
func (n *network) tell(e entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.diary != nil {
		n.diary.add(e)
	}
}

// addressed is an address on this network.
func addressed(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), port)
}

func (p *networkPort) SetReadDeadline(t time.Time) error {
	p.until = t
	return nil
}

func (p *networkPort) Read(b []byte) (int, error) {
	if len(p.in) == 0 {
		p.found(time.Now())
	}
	select {
	case d := <-p.in:
		p.from = d.from
		p.tell(entry{at: time.Now(), who: fromVehicle, raw: d.bytes})
		return copy(b, d.bytes), nil
	case <-time.After(time.Until(p.until)):
		return 0, os.ErrDeadlineExceeded
	case <-p.gone:
		return 0, io.EOF
	}
}

func (p *networkPort) sender() netip.AddrPort { return p.from }

func (p *networkPort) Write(b []byte) (int, error) { panic("a write without an address") }

func (p *networkPort) writeTo(b []byte, to netip.AddrPort) (int, error) {
	if !to.IsValid() {
		return 0, errNoPeer
	}
	p.tell(entry{at: time.Now(), who: toVehicle, raw: bytes.Clone(b)})
	p.mu.Lock()
	end := p.ends[to]
	p.mu.Unlock()
	if end != nil {
		end.Write(b)
	}
	return len(b), nil
}

func (p *networkPort) Close() error {
	p.once.Do(func() { close(p.gone) })
	return nil
}

// at puts a vehicle at an address, or moves it there from the address where it was.
func (n *network) at(t *testing.T, s *simulator, address netip.AddrPort) {
	t.Helper()
	n.away(s)
	end, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends[address] = end
	go func() { // ends with the simulator
		for {
			b := make([]byte, simBuffer)
			size, err := end.Read(b)
			if err != nil {
				return
			}
			n.in <- datagram{address, b[:size]}
		}
	}()
}

// change lets a vehicle send each datagram from the next one of some ports; it hears nothing.
func (n *network) change(s *simulator, ports int) {
	end, err := s.open()
	if err != nil {
		panic(err)
	}
	go func() { // ends with the simulator
		for i := 0; ; i++ {
			b := make([]byte, simBuffer)
			size, err := end.Read(b)
			if err != nil {
				return
			}
			n.in <- datagram{addressed(uint16(20000 + i%ports)), b[:size]}
		}
	}()
}

// away takes a vehicle from its address: it is silent, and hears nothing.
func (n *network) away(s *simulator) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for address, end := range n.ends {
		if end.(*simPort).s == s {
			end.Close()
			delete(n.ends, address)
		}
	}
}

// The addresses of a vehicle, of its bridge after a restart, and of another vehicle with its ids.
var atHome, atNewPort, atOther = addressed(14550), addressed(40001), addressed(40002)

// flyOnUDP is fly on a network: the vehicle is at atHome.
func flyOnUDP(t *testing.T, flavour simFlavour, prepare func(*simulator), do func(f *flight, n *network)) {
	t.Helper()
	n := &network{ends: map[netip.AddrPort]io.ReadWriteCloser{}}
	var vehicle *simulator
	keep := func(s *simulator) {
		vehicle, s.uid = s, 7
		if prepare != nil {
			prepare(s)
		}
	}
	flyWith(t, flavour, keep, func(d *drone) {
		n.in = make(chan datagram, 1000) // of this bubble
		n.at(t, vehicle, atHome)
		d.link.device.datagrams, d.link.device.lossy = true, false
		if x := vehicle.signature; x != nil {
			d.link.signing = newSigning(signKey(x.key))
		}
		d.link.device.open = func(context.Context) (port, error) {
			return &networkPort{network: n, gone: make(chan struct{})}, nil
		}
	}, func(f *flight) {
		n.mu.Lock()
		n.diary = f.diary
		n.mu.Unlock()
		do(f, n)
	})
}

// another runs another vehicle with the same ids, until the test ends.
func (f *flight) another(flavour simFlavour) *simulator {
	s := newTestSimulator(flavour)
	ctx, end := context.WithCancel(f.Context())
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	f.Cleanup(func() {
		end()
		running.Wait()
	})
	time.Sleep(time.Second) // it has booted
	return s
}

// onEachUDP runs a flight on a network for both autopilots.
func onEachUDP(t *testing.T, do func(f *flight, n *network)) {
	for name, flavour := range map[string]simFlavour{"px4": simPX4, "ardupilot": simArduPilot} {
		t.Run(name, func(t *testing.T) { flyOnUDP(t, flavour, nil, do) })
	}
}

// messagesWith lists the messages of the status that contain these words.
func (f *flight) messagesWith(words string) (list []string) {
	for _, m := range f.status()["messages"].([]any) {
		if text := m.(object)["text"].(string); strings.Contains(text, words) {
			list = append(list, text)
		}
	}
	return list
}

// notVehicles are all other MAV_TYPEs, and two that are not in MAVLink yet.
var notVehicles = []minimal.MAV_TYPE{
	minimal.MAV_TYPE_ANTENNA_TRACKER, minimal.MAV_TYPE_GCS, minimal.MAV_TYPE_ONBOARD_CONTROLLER,
	minimal.MAV_TYPE_GIMBAL,
	minimal.MAV_TYPE_ADSB, minimal.MAV_TYPE_CAMERA, minimal.MAV_TYPE_CHARGING_STATION, minimal.MAV_TYPE_FLARM,
	minimal.MAV_TYPE_SERVO, minimal.MAV_TYPE_ODID, minimal.MAV_TYPE_BATTERY, minimal.MAV_TYPE_PARACHUTE,
	minimal.MAV_TYPE_LOG, minimal.MAV_TYPE_OSD, minimal.MAV_TYPE_IMU, minimal.MAV_TYPE_GPS, minimal.MAV_TYPE_WINCH,
	minimal.MAV_TYPE_ILLUMINATOR, minimal.MAV_TYPE_GRIPPER, minimal.MAV_TYPE_RADIO, 77, 255,
}

func typed(typ minimal.MAV_TYPE) *common.MessageHeartbeat {
	beat := copterBeat()
	beat.Type = typ
	return beat
}

// receivers records where each frame went.
type receivers struct {
	*networkPort
	to []netip.AddrPort
}

func (p *receivers) writeTo(b []byte, to netip.AddrPort) (int, error) {
	p.to = append(p.to, to)
	return len(b), nil
}
