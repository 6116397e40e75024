package bench_test

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/yare-project/yare/bench"
	"github.com/yare-project/yare/internal/freeport"
	"github.com/yare-project/yare/node/cri/fake"
	"github.com/yare-project/yare/server"
)

// startCluster is a whole cluster in this process, whose containers are pretended.
func startCluster(t *testing.T) *rest.Config {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Find("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	c := &server.Config{
		DataDir: t.TempDir(), Backend: server.Memory, Listener: listener, AgentPort: port, NodeName: "dinghy", NodeIP: netip.MustParseAddr("127.0.0.1"),
		Log: slog.New(slog.DiscardHandler),
		CRI: func() (internalapi.RuntimeService, internalapi.ImageManagerService) {
			r := fake.New(fake.Config{})
			return r, r
		},
	}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cluster, err := server.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	stop, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Wait(stop) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	})
	e := cluster.Admin("bench")
	return &rest.Config{Host: e.Server, TLSClientConfig: rest.TLSClientConfig{CAData: e.CA, CertData: e.Cert, KeyData: e.Key}}
}

func TestPodsAreScheduledAndStarted(t *testing.T) {
	results := map[string]bench.Result{}
	err := bench.Run(t.Context(), bench.Config{Server: startCluster(t), Run: []string{"schedule", "podstart"}, Clients: 4, Nodes: 3, Pods: 10,
		Image: "example.org/app:1", Command: []string{"sleep", "1h"}, Report: func(r bench.Result) { results[r.Load] = r }})
	if err != nil {
		t.Fatal(err)
	}
	for _, load := range []string{"schedule onto 3 nodes", "pod: create to bound", "pod: create to Ready"} {
		if r, ran := results[load]; !ran || r.Count != 10 || r.Failed > 0 || r.FirstError != "" {
			t.Errorf("%s: %+v", load, r)
		}
	}
	if results["pod: create to Ready"].P50 <= 0 {
		t.Error("no time is told")
	}
}
