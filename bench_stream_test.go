package main

import (
	"bufio"
	"bytes"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkStream is what 16 streams of the status at 10 Hz cost beside one client
// that asks for it ten times a second: the CPU of the release binary on a full
// link, in turns.
func BenchmarkStream(b *testing.B) {
	t := build(b, runtime.GOARCH)
	flight, _ := captured(b, "px4")
	p := begin(b, t.ours)
	p.poured(b, t.far, flight, fullLink) // it greets
	var pouring sync.WaitGroup
	stop := make(chan struct{})
	pouring.Go(func() { pour(t.far, flight, fullLink, math.MaxInt, stop) })
	defer pouring.Wait()
	defer close(stop)

	var single, all atomic.Int64 // events
	ways := []struct {
		name string
		ask  func(end <-chan struct{})
		took []time.Duration
	}{
		{name: "nobody", ask: func(end <-chan struct{}) { <-end }},
		{name: "poller", ask: func(end <-chan struct{}) { polls(b, p.address, end) }},
		{name: "1-stream", ask: func(end <-chan struct{}) { listens(b, p.address, 1, &single, end) }},
		{name: "16-streams", ask: func(end <-chan struct{}) { listens(b, p.address, maxStreams, &all, end) }},
	}
	const turns, seconds = 10, 2
	asked := 0.0 // seconds
	for b.Loop() {
		for turn := range turns {
			for i := range ways {
				w := &ways[(turn+i)%len(ways)]
				w.took = append(w.took, p.ranWhile(b, seconds, w.ask))
			}
			asked += seconds + settles.Seconds()
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(all.Load())/maxStreams/asked, "events/s-of-each")
	for _, w := range ways {
		b.ReportMetric(quantile(w.took, 50).Seconds()/seconds*100, w.name+"-%-of-a-core")
	}
	nobody, poller, streams := ways[0].took, ways[1].took, ways[3].took
	whole := pair{ours: poller, bare: streams}
	b.ReportMetric(whole.ratio(), "x-poller") // of all that the program does
	added := func(d []time.Duration) float64 { return float64(quantile(d, 50) - quantile(nobody, 50)) }
	b.ReportMetric(added(streams)/added(poller), "x-poller-added") // over nobody
}

// settles is how long somebody has asked before it is measured.
const settles = 300 * time.Millisecond

// ranWhile is the CPU of a process in some seconds of what asks does, which has
// begun before and ends after them.
func (p process) ranWhile(b *testing.B, seconds int, asks func(end <-chan struct{})) time.Duration {
	end := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { asks(end) })
	time.Sleep(settles)
	before := p.cpu(b)
	time.Sleep(time.Duration(seconds) * time.Second)
	took := p.cpu(b) - before
	close(end)
	asking.Wait()
	return took
}

// polls asks for the status ten times a second.
func polls(b *testing.B, address string, end <-chan struct{}) {
	c := connect(b, address)
	defer c.conn.Close()
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	for {
		if err := c.do(get("/status")); err != nil {
			b.Error(err)
			return
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
}

// listens reads so many streams of the status and counts their events.
func listens(b *testing.B, address string, streams int, events *atomic.Int64, end <-chan struct{}) {
	request := []byte("GET /api/drone/status HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	var reading sync.WaitGroup
	defer reading.Wait()
	for range streams {
		c := connect(b, address)
		defer c.conn.Close()
		if _, err := c.conn.Write(request); err != nil {
			b.Error(err)
		}
		reading.Go(func() {
			for lines := bufio.NewScanner(c.in); lines.Scan(); {
				if bytes.HasPrefix(lines.Bytes(), []byte("event: ")) {
					events.Add(1)
				}
			}
		})
	}
	<-end
}
