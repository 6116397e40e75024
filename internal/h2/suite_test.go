package h2_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/internal/h2"
)

// start serves h by this package's server or by net/http's own, which is the measure of what clients and handlers may expect.
func start(t *testing.T, ours bool, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	if ours {
		h2.New(h2.Config{}).Attach(srv.Config)
		srv.Listener = h2.Gather(srv.Listener)
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// both runs a test against both servers.
func both(t *testing.T, f func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server)) {
	for name, ours := range map[string]bool{"ours": true, "net/http": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, func(h http.HandlerFunc) *httptest.Server { return start(t, ours, h) })
		})
	}
}

func do(t *testing.T, srv *httptest.Server, method, path string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.ProtoMajor != 2 {
		t.Fatalf("answered over %s", res.Proto)
	}
	return res, string(data)
}

func TestAnswers(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 64<<10)
	answers := map[string]http.HandlerFunc{
		"/empty":  func(http.ResponseWriter, *http.Request) {},
		"/short":  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") },
		"/status": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); io.WriteString(w, "teapot") },
		"/none":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"/chunks": func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, long[:5000])
			io.WriteString(w, long[:9])
		},
		"/long": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, long) },
		"/html": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html><body>") },
		"/headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-Many"] = []string{"a", "b"}
			w.Header().Set("Connection", "close")
		},
		"/late":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200); w.Header().Set("X-Late", "1") },
		"/twice":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(201); w.WriteHeader(500) },
		"/declared": func(w http.ResponseWriter, _ *http.Request) { declare(w, len(long)); io.WriteString(w, long) },
		"/pieces": func(w http.ResponseWriter, _ *http.Request) {
			declare(w, len(long))
			for i := 0; i < len(long); i += 1000 {
				io.WriteString(w, long[i:min(i+1000, len(long))])
			}
		},
		"/flushed": func(w http.ResponseWriter, _ *http.Request) {
			declare(w, 100_000)
			io.WriteString(w, long[:50_000])
			w.(http.Flusher).Flush()
			io.WriteString(w, long[50_000:100_000])
		},
		"/trailers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			io.WriteString(w, "body")
			w.Header().Set("X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Other", "7")
		},
	}
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		srv := serve(func(w http.ResponseWriter, req *http.Request) { answers[req.URL.Path](w, req) })
		for path, want := range map[string]struct {
			code          int
			body          string
			length        int64
			header, value string
		}{
			"/empty": {200, "", 0, "X-None", ""}, "/short": {200, "hello", 5, "Content-Type", "text/plain; charset=utf-8"}, "/status": {418, "teapot", 6, "", ""},
			"/none": {204, "", 0, "", ""}, "/chunks": {200, long[:5000] + long[:9], -1, "", ""}, "/long": {200, long, -1, "", ""},
			"/html": {200, "<html><body>", 12, "Content-Type", "text/html; charset=utf-8"}, "/headers": {200, "", 0, "X-Many", "a,b"},
			"/late": {200, "", 0, "X-Late", ""}, "/twice": {201, "", 0, "", ""}, "/declared": {200, long, int64(len(long)), "", ""},
			"/pieces": {200, long, int64(len(long)), "", ""}, "/flushed": {200, long[:100_000], 100_000, "", ""},
		} {
			res, body := do(t, srv, "GET", path, nil)
			if res.StatusCode != want.code || body != want.body || res.ContentLength != want.length {
				t.Errorf("%s: %d, %d bytes, declared %d; want %d, %d, %d", path, res.StatusCode, len(body), res.ContentLength, want.code, len(want.body), want.length)
			}
			if got := strings.Join(res.Header[want.header], ","); want.header != "" && got != want.value {
				t.Errorf("%s: %s is %q, not %q", path, want.header, got, want.value)
			}
			if res.Header.Get("Date") == "" || res.Header.Get("Connection") != "" {
				t.Errorf("%s: header %v", path, res.Header)
			}
		}
		for _, path := range []string{"/short", "/declared", "/long"} {
			if res, body := do(t, srv, "HEAD", path, nil); res.StatusCode != 200 || body != "" {
				t.Errorf("HEAD %s: %d %q", path, res.StatusCode, body)
			}
		}
		res, _ := do(t, srv, "GET", "/trailers", nil)
		if d := cmp.Diff(http.Header{"X-Sum": {"42"}, "X-Other": {"7"}}, res.Trailer); d != "" {
			t.Errorf("trailers (-want +got):\n%s", d)
		}
	})
}

func declare(w http.ResponseWriter, n int) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", fmt.Sprint(n))
}

func TestRequests(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			fmt.Fprintf(w, "%s %s %s %s %s %q %d", req.Method, req.RequestURI, req.URL.Path, req.Proto, req.Host, req.Header["X-A"], req.ContentLength)
			if req.TLS == nil || req.RemoteAddr == "" || req.Context().Value(http.ServerContextKey) == nil || req.Context().Value(http.LocalAddrContextKey) == nil {
				fmt.Fprint(w, " something is missing")
			}
		})
		host := strings.TrimPrefix(srv.URL, "https://")
		if _, got := do(t, srv, "GET", "/a%2Fb?x=1", nil); got != fmt.Sprintf("GET /a%%2Fb?x=1 /a/b HTTP/2.0 %s [] 0", host) {
			t.Error(got)
		}
		req, _ := http.NewRequestWithContext(t.Context(), "PUT", srv.URL+"/", strings.NewReader("four"))
		req.Header["X-A"] = []string{"1", "2"}
		req.Host = "example.com"
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got, _ := io.ReadAll(res.Body); string(got) != `PUT / / HTTP/2.0 example.com ["1" "2"] 4` {
			t.Errorf("%s", got)
		}
	})
}

func TestBodies(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			n, err := io.Copy(w, req.Body)
			if err != nil {
				t.Errorf("after %d bytes: %v", n, err)
			}
		})
		var wg sync.WaitGroup
		for _, size := range []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 300_000, 5 << 20} {
			for _, declared := range []bool{true, false} {
				wg.Go(func() {
					sent := bytes.Repeat([]byte("abcdefg."), size/8+1)[:size]
					var r io.Reader = bytes.NewReader(sent)
					if !declared {
						r = io.MultiReader(r)
					}
					if _, got := do(t, srv, "POST", "/", r); got != string(sent) {
						t.Errorf("%d bytes came back as %d", size, len(got))
					}
				})
			}
		}
		wg.Wait()
		// A body that nobody reads does not disturb the next request.
		lazy := serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "no, thanks") })
		for range 5 {
			if _, got := do(t, lazy, "POST", "/", bytes.NewReader(make([]byte, 3<<20))); got != "no, thanks" {
				t.Error(got)
			}
		}
	})
}

func TestExpectContinueAndEarlyHints(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("X-Hints") != "" {
				w.Header().Set("Link", "</a>")
				w.WriteHeader(http.StatusEarlyHints)
			}
			_, _ = io.Copy(w, req.Body)
		})
		srv.Client().Transport.(*http.Transport).ExpectContinueTimeout = 20 * time.Second
		for header, want := range map[string]int{"Expect": http.StatusContinue, "X-Hints": http.StatusEarlyHints} {
			interim(t, srv, header, want)
		}
	})
}

// interim makes a request whose header asks for an interim answer.
func interim(t *testing.T, srv *httptest.Server, header string, want int) {
	var seen []int
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { seen = append(seen, code); return nil }})
	req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL, strings.NewReader("body"))
	req.Header.Set(header, "100-continue")
	res, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, _ := io.ReadAll(res.Body); string(got) != "body" {
		t.Errorf("%q", got)
	}
	if d := cmp.Diff([]int{want}, seen); d != "" {
		t.Error(d)
	}
}

func TestStreamsBothWays(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			lines := bufio.NewScanner(req.Body)
			for lines.Scan() {
				fmt.Fprintf(w, "you said %s\n", lines.Text())
				w.(http.Flusher).Flush()
			}
		})
		r, w := io.Pipe()
		req, _ := http.NewRequestWithContext(t.Context(), "POST", srv.URL, r)
		res, err := srv.Client().Do(first(req, w))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answers := bufio.NewScanner(res.Body)
		for i := range 50 {
			if i > 0 {
				fmt.Fprintf(w, "%d\n", i)
			}
			if !answers.Scan() || answers.Text() != fmt.Sprintf("you said %d", i) {
				t.Fatalf("%q %v", answers.Text(), answers.Err())
			}
		}
		w.Close()
		if answers.Scan() || answers.Err() != nil {
			t.Error("after the end:", answers.Text(), answers.Err())
		}
	})
}

// first has line 0 sent as soon as the request is under way: its answer is what the client's Do waits for.
func first(req *http.Request, w io.Writer) *http.Request {
	go fmt.Fprintln(w, 0)
	return req
}

func TestClientGivesUp(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		ended := make(chan error, 1)
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			ctx, cancel := context.WithTimeout(req.Context(), time.Minute)
			defer cancel()
			w.(http.Flusher).Flush()
			<-ctx.Done()
			ended <- ctx.Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestHandlersThatBreakOff(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		res, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if got, err := io.ReadAll(res.Body); err == nil {
			t.Errorf("a cut answer looks whole: %q", got)
		}
		short := serve(func(w http.ResponseWriter, _ *http.Request) { declare(w, 100); io.WriteString(w, "too short") })
		res, err = short.Client().Get(short.URL)
		if err == nil {
			defer res.Body.Close()
			_, err = io.ReadAll(res.Body)
		}
		if err == nil {
			t.Error("an answer shorter than declared looks whole")
		}
		much := serve(func(w http.ResponseWriter, _ *http.Request) {
			declare(w, 4)
			io.WriteString(w, "four")
			io.WriteString(w, "!")
		})
		if res, err := much.Client().Get(much.URL); err == nil {
			defer res.Body.Close()
			if data, _ := io.ReadAll(res.Body); len(data) > 4 {
				t.Errorf("%q is more than declared", data)
			}
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		body := strings.Repeat("x", 100_000)
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			declare(w, len(body))
			io.WriteString(w, body)
		})
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for range 5 {
					if _, got := do(t, srv, "GET", "/", nil); got != body {
						t.Errorf("%d bytes", len(got))
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestSlowReaderCostsTheOthersNothing(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		stuck := make(chan error, 1)
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == "/quick" {
				io.WriteString(w, "quick")
				return
			}
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, 64<<10))
			}
			stuck <- err
		})
		res, err := srv.Client().Get(srv.URL + "/endless") // whose body nobody reads
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		for range 20 {
			if _, got := do(t, srv, "GET", "/quick", nil); got != "quick" {
				t.Error(got)
			}
		}
		if err := <-stuck; err == nil {
			t.Error("the deadline did not end the write")
		}
	})
}

func TestShutdownLetsRequestsFinish(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		begun, finish := make(chan struct{}), make(chan struct{})
		srv := serve(func(w http.ResponseWriter, _ *http.Request) {
			begun <- struct{}{}
			<-finish
			io.WriteString(w, "done")
		})
		got := make(chan string)
		go func() {
			res, err := srv.Client().Get(srv.URL)
			if err != nil {
				got <- err.Error()
				return
			}
			defer res.Body.Close()
			data, _ := io.ReadAll(res.Body)
			got <- string(data)
		}()
		<-begun
		down := make(chan error)
		go func() { down <- srv.Config.Shutdown(t.Context()) }()
		close(finish)
		if s := <-got; s != "done" {
			t.Errorf("the request in flight got %q", s)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
		if _, err := srv.Client().Get(srv.URL); err == nil {
			t.Error("a request after the shutdown was answered")
		}
	})
}

func TestConnectionCloseSendsTheClientElsewhere(t *testing.T) {
	both(t, func(t *testing.T, serve func(http.HandlerFunc) *httptest.Server) {
		from := map[string]bool{}
		var mu sync.Mutex
		srv := serve(func(w http.ResponseWriter, req *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			from[req.RemoteAddr] = true
			w.Header().Set("Connection", "close")
		})
		for limit := time.After(20 * time.Second); ; {
			if res, _ := do(t, srv, "GET", "/", nil); res.StatusCode != 200 {
				t.Fatal(res.Status)
			}
			mu.Lock()
			n := len(from)
			mu.Unlock()
			if n > 1 {
				return
			}
			select {
			case <-limit:
				t.Fatal("the client keeps its connection")
			default:
			}
		}
	})
}

func TestHTTP1GoesOnBeside(t *testing.T) {
	srv := start(t, true, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { io.WriteString(w, req.Proto) }))
	config := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = nil
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: config, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}}
	defer old.CloseIdleConnections()
	res, err := old.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, _ := io.ReadAll(res.Body); string(got) != "HTTP/1.1" {
		t.Errorf("%s", got)
	}
}
