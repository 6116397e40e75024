package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/yare-project/yare/server"
)

func TestLoadFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want server.Load
		err  string
	}{
		{"", server.Load{MaxRequests: 400, MaxMutating: 200, RequestTimeout: time.Minute, MinRequestTimeout: 30 * time.Minute}, ""},
		{"--enable-priority-and-fairness=false --max-requests-inflight=0 --max-mutating-requests-inflight=7 --request-timeout=5s --min-request-timeout=60 --shutdown-delay-duration=3s",
			server.Load{WithoutFairness: true, MaxRequests: -1, MaxMutating: 7, RequestTimeout: 5 * time.Second, MinRequestTimeout: time.Minute, ShutdownDelay: 3 * time.Second}, ""},
		{"--max-requests-inflight=-1", server.Load{}, "--max-requests-inflight -1 is negative"},
		{"--request-timeout=0s", server.Load{}, "--request-timeout 0s: give a time"},
	} {
		f := &flags{}
		set := pflag.NewFlagSet("yare", pflag.ContinueOnError)
		f.addLoad(set)
		if err := set.Parse(strings.Fields(c.args)); err != nil {
			t.Fatal(err)
		}
		err := f.resolveLoad()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.args, err, c.err)
			}
			continue
		}
		if d := cmp.Diff(c.want, f.config.Load); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got)\n%s", c.args, err, d)
		}
	}
}

// A command without these flags leaves the server's defaults alone.
func TestLoadFlagsThatACommandLacks(t *testing.T) {
	f := &flags{}
	if err := f.resolveLoad(); err != nil || f.config.Load != (server.Load{}) {
		t.Errorf("%+v, %v", f.config.Load, err)
	}
}
