package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// put creates a ConfigMap of about a size.
func (h *harness) put(name string, size int) {
	h.t.Helper()
	_, err := h.local().Create(context.Background(), configMaps(), configMap(name, map[string]string{"v": strings.Repeat("x", size)}), metav1.CreateOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) openWatches() string {
	for _, line := range strings.Split(h.do("GET", "/metrics", "").body, "\n") {
		if strings.HasPrefix(line, `apiserver_longrunning_requests{resource="configmaps",subresource="",verb="WATCH"}`) {
			return strings.Fields(line)[1]
		}
	}
	return "0"
}

// A watcher that does not read is ended; one beside it that reads gets everything, and writers don't notice.
func TestAWatcherThatDoesNotReadIsEnded(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		h := start(t, func(c *apiserverConfig) { c.Limits.Stall = 100 * time.Millisecond })
		s := h.serve(t, true)
		for range 3 {
			resp := must(s.client(version == "HTTP/2").Get(s.url("/api/v1/namespaces/ns/configmaps?watch=1")))
			defer resp.Body.Close()
			if resp.Proto[:len(version)] != version {
				t.Fatalf("%s was spoken", resp.Proto)
			}
		}
		reader := must(s.client(version == "HTTP/2").Get(s.url("/api/v1/namespaces/ns/configmaps?watch=1")))
		defer reader.Body.Close()
		heard := make(chan string, 1000)
		go func() {
			lines := bufio.NewReaderSize(reader.Body, 1<<20)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					close(heard)
					return
				}
				heard <- line
			}
		}()
		const events = 50
		for i := range events {
			h.put(fmt.Sprintf("c-%d", i), 250<<10)
			select {
			case line, ok := <-heard:
				if !ok || !strings.Contains(line, fmt.Sprintf(`"name":"c-%d"`, i)) {
					t.Fatalf("%s: event %d: %v %.80s", version, i, ok, line)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s: the reader got only %d events", version, i)
			}
		}
		waitFor(t, "the others to be ended", func() bool { return h.openWatches() == "1" })
	}
}

// What a client announces or asks for costs the server no more than what it sends.
func TestWhatAClientMayMakeTheServerKeep(t *testing.T) {
	h := start(t)
	s := h.serve(t, true)
	dial := func() *tls.Conn {
		conn := must(tls.Dial("tcp", s.addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}))
		t.Cleanup(func() { conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		return conn
	}
	status := func(conn net.Conn) string {
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(line)
	}
	t.Run("headers", func(t *testing.T) {
		conn := dial()
		go func() {
			fmt.Fprint(conn, "GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n")
			for range 4 << 10 {
				if _, err := fmt.Fprintf(conn, "X-Much: %s\r\n", strings.Repeat("m", 1<<10)); err != nil {
					return
				}
			}
		}()
		if got := status(conn); !strings.HasPrefix(got, "HTTP/1.1 431") {
			t.Error(got)
		}
	})
	t.Run("a large body, announced or not", func(t *testing.T) {
		large := append([]byte(`{"metadata":{"name":"a"},"data":{"v":"`), bytes.Repeat([]byte("x"), 4<<20)...)
		for name, body := range map[string]io.Reader{"announced": bytes.NewReader(large), "in chunks": io.MultiReader(bytes.NewReader(large))} {
			resp, err := s.client(true).Post(s.url("/api/v1/namespaces/ns/configmaps"), "application/json", body)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %s", name, resp.Status)
			}
		}
	})
	t.Run("bodies that are announced and do not come", func(t *testing.T) {
		before := heap()
		const n = 60
		for range n {
			fmt.Fprintf(dial(), "POST /api/v1/namespaces/ns/configmaps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", 3<<20)
		}
		waitFor(t, "the requests to be begun", func() bool {
			return strings.Contains(h.do("GET", "/metrics", "").body, fmt.Sprintf("apiserver_current_inflight_requests{request_kind=\"mutating\"} %d\n", n))
		})
		if each := (heap() - before) / n; each > 300<<10 {
			t.Errorf("each costs %d KiB", each>>10)
		}
	})
	t.Run("watches in which nothing happens", func(t *testing.T) {
		for i := range 4 {
			h.put(fmt.Sprintf("big-%d", i), 200<<10)
		}
		before := heap()
		const n = 200
		c := s.client(true)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for range n {
			resp := must(c.Do(must(http.NewRequestWithContext(ctx, "GET", s.url("/api/v1/namespaces/ns/configmaps?watch=1"), nil))))
			lines := bufio.NewReader(resp.Body)
			for range 4 {
				must(lines.ReadString('\n'))
			}
		}
		if each := (heap() - before) / n; each > 100<<10 {
			t.Errorf("each costs %d KiB, after having sent 800 KiB", each>>10)
		}
	})
	t.Run("streams of one connection", func(t *testing.T) {
		if refused := h.streams(t, s.addr, 1100); refused < 100 || refused > 101 {
			t.Errorf("of 1100 watches over one connection, %d were refused, want all beyond 1000", refused)
		}
	})
}

// heap is what the process keeps.
func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// streams opens n watches over one connection, as a client does that heeds no limit, and returns how many were refused.
func (h *harness) streams(t *testing.T, addr string, n int) (refused int) {
	conn := must(tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	must(conn.Write([]byte(http2.ClientPreface)))
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	go func() {
		var block bytes.Buffer
		enc := hpack.NewEncoder(&block)
		for i := range n {
			block.Reset()
			for _, p := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", "/api/v1/configmaps?watch=1&resourceVersion=1"}} {
				_ = enc.WriteField(hpack.HeaderField{Name: p[0], Value: p[1]})
			}
			if f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}) != nil {
				return
			}
		}
	}()
	answered := 0
	for answered+refused < n {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d answers and %d refusals: %v", answered, refused, err)
		}
		switch x := frame.(type) {
		case *http2.HeadersFrame:
			answered++
		case *http2.RSTStreamFrame:
			refused++
		case *http2.GoAwayFrame:
			t.Fatalf("after %d answers the connection ends: %v", answered, x.ErrCode)
		}
	}
	return refused
}
