package main

// How ports are waited for, on real ones and in real time: the kernel has no other.
// Nothing here has to be quick: a pause that must end lasts an hour.

import (
	"net"
	"sync"
	"testing"
	"time"
)

// onEachPort runs f with an open port of each kind and what writes to it.
func onEachPort(t *testing.T, f func(t *testing.T, d *descriptor, write func())) {
	some := packet(1, 1, 1, px4Beat())
	open := func(t *testing.T, name string) port {
		t.Helper()
		p, err := mustDevice(t, name, 57600).open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}
	writer := func(t *testing.T, w interface{ Write([]byte) (int, error) }) func() {
		return func() { w.Write(some) } // the port may be closed by now
	}
	t.Run("serial", func(t *testing.T) {
		line := openPTY(t)
		f(t, open(t, line.path).(*serialPort).descriptor, writer(t, line.master))
	})
	t.Run("udpin", func(t *testing.T) {
		p := open(t, "udpin://127.0.0.1:0").(*udpPort)
		c, err := net.Dial("udp", p.local.String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f(t, p.descriptor, writer(t, c))
	})
	t.Run("tcp", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		d := open(t, "tcp://"+l.Addr().String()).(*descriptor)
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f(t, d, writer(t, c))
	})
}

// reads reads once and fails the test if nothing comes.
func (d *descriptor) reads(t *testing.T) {
	t.Helper()
	if n, err := d.Read(make([]byte, 2048)); n == 0 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// keepWriting writes over and over until the test ends.
func keepWriting(t *testing.T, write func()) {
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
				write()
			}
		}
	})
	t.Cleanup(func() { close(stop); writing.Wait() })
}

// However much comes, it wakes its reader 50 times a second; a busy machine can
// only make that fewer.
func TestABusyPortWakesItsReaderSeldom(t *testing.T) {
	t.Parallel()
	onEachPort(t, func(t *testing.T, d *descriptor, write func()) {
		d.gather(func() bool { return false })
		keepWriting(t, write)
		d.reads(t)
		began, woken, wakes := time.Now(), d.woken, 0
		for time.Since(began) < 15*readEvery && !t.Failed() {
			d.reads(t)
			if d.woken != woken {
				woken = d.woken
				wakes++
			}
		}
		if most := int(time.Since(began)/readEvery) + 2; wakes > most {
			t.Errorf("woken %d times in %v, want %d at most", wakes, time.Since(began), most)
		}
	})
}

func TestAnAwaitedAnswerIsReadAtOnce(t *testing.T) {
	t.Parallel()
	onEachPort(t, func(t *testing.T, d *descriptor, write func()) {
		d.pause = time.Hour
		keepWriting(t, write)
		asked := 0
		d.gather(func() bool { asked++; return true })
		for asked < 3 && !t.Failed() {
			d.reads(t)
		}
		// Nobody awaits an answer; but when bytes have begun to gather, somebody does.
		var pausing sync.WaitGroup
		d.gather(func() bool {
			asked++
			pausing.Go(func() {
				time.Sleep(time.Duration(asked) * time.Millisecond) // it is heard before the pause too
				d.hurry()
			})
			return false
		})
		for asked < 6 && !t.Failed() {
			d.reads(t)
			pausing.Wait()
		}
	})
}

func TestAClosedPortEndsItsReadAlsoWhileBytesGather(t *testing.T) {
	t.Parallel()
	for _, gathers := range []bool{false, true} {
		onEachPort(t, func(t *testing.T, d *descriptor, write func()) {
			var closing sync.WaitGroup
			end := func() { closing.Go(func() { d.Close() }) }
			if gathers {
				d.pause = time.Hour
				d.gather(func() bool { end(); return false })
				keepWriting(t, write)
			} else {
				end()
			}
			var err error
			for err == nil {
				_, err = d.Read(make([]byte, 2048))
			}
			closing.Wait()
		})
	}
}
