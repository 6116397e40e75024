package probe

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"
)

// asked runs a probe on a clock of its own, and answers each question by script; "." is good, "x" bad. It returns the reports and how many
// Unhealthy events there were, once the script is used up or the probe has ended.
func asked(t *testing.T, kind Kind, p corev1.Probe, script string) (reports []bool, events int) {
	t.Helper()
	clk := testingclock.NewFakeClock(time.Unix(1000, 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	done := make(chan struct{})
	go func() {
		defer close(done)
		Run(ctx, Config{Kind: kind, Probe: &p, Started: clk.Now(), Clock: clk,
			Ask: func(context.Context) (Answer, string, error) {
				// Questions between the regular ones are answered badly: they must not count.
				if clk.Since(time.Unix(1000, 0))%time.Second != 0 {
					return Bad, "", nil
				}
				if n >= len(script) {
					cancel()
					return Bad, "", nil
				}
				n++
				if script[n-1] == '.' {
					return Good, "", nil
				}
				return Bad, "no", nil
			},
			Report: func(ok bool) { reports = append(reports, ok) },
			Event:  func(string, string) { events++ },
		})
	}()
	for {
		select {
		case <-done:
			return reports, events
		default:
			if clk.HasWaiters() {
				clk.Step(100 * time.Millisecond)
			}
		}
	}
}

func TestThresholds(t *testing.T) {
	// The first question of a container that just started is asked at once, and does not count if it is bad.
	for _, test := range []struct {
		name    string
		kind    Kind
		good    int32
		bad     int32
		script  string
		reports []bool
	}{
		{"ready at the first good answer", Readiness, 1, 3, "x.", []bool{true}},
		{"unready only after three bad ones in a row", Readiness, 1, 3, "x.xx.xxx", []bool{true, false}},
		{"two good ones in a row where asked for", Readiness, 2, 3, ".x..", []bool{true}},
		{"liveness ends with the third bad answer", Liveness, 1, 3, ".xx.xxx...", []bool{true, false}},
		{"startup ends with the first good answer", Startup, 1, 5, "xx.xxx", []bool{true}},
		{"or with the last bad one", Startup, 1, 2, "xxx", []bool{false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, _ := asked(t, test.kind, corev1.Probe{PeriodSeconds: 1, SuccessThreshold: test.good, FailureThreshold: test.bad}, test.script)
			if len(got) != len(test.reports) {
				t.Fatalf("reports %v, want %v", got, test.reports)
			}
			for i := range got {
				if got[i] != test.reports[i] {
					t.Fatalf("reports %v, want %v", got, test.reports)
				}
			}
		})
	}
}

func TestInitialDelay(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1000, 0))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan time.Duration, 1)
	go Run(ctx, Config{Kind: Readiness, Probe: &corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 1}, Started: clk.Now(), Clock: clk,
		Ask: func(context.Context) (Answer, string, error) {
			select {
			case first <- clk.Since(time.Unix(1000, 0)):
			default:
			}
			return Good, "", nil
		}, Report: func(bool) {}, Event: func(string, string) {}})
	for {
		select {
		case at := <-first:
			if at < 5*time.Second {
				t.Errorf("first question after %s, want 5s", at)
			}
			return
		default:
			if clk.HasWaiters() {
				clk.Step(time.Second)
			}
		}
	}
}

func TestRedirectsStayOnTheHost(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	defer other.Close()
	away := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/away":
			http.Redirect(w, r, away, http.StatusFound)
		}
	}))
	defer srv.Close()
	for path, want := range map[string]Answer{"/here": Good, "/away": Warning} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, out, _ := get(req, time.Second); got != want {
			t.Errorf("%s: %v (%s), want %v", path, got, out, want)
		}
	}
}
