package bench_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/yare-project/yare/bench"
	"github.com/yare-project/yare/yaretest"
)

// TestLoads runs every load that needs no node against a server in this process, small.
func TestLoads(t *testing.T) {
	server := yaretest.Start(t, yaretest.Controllers("serviceaccount"))
	var results []bench.Result
	err := bench.Run(t.Context(), bench.Config{
		Server: server.Config(), PIDs: []int{os.Getpid()}, Run: []string{"get", "list", "update", "apply", "watch", "stages", "delete", "idle"},
		Objects: 40, Clients: 4, Watchers: 5, Events: 10, Samples: 5, Idle: time.Millisecond, Report: func(r bench.Result) { results = append(results, r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, r := range results {
		counts[r.Load] = r.Count
		if r.Failed > 0 || r.FirstError != "" {
			t.Errorf("%s: %d failed: %s", r.Load, r.Failed, r.FirstError)
		}
		if r.MemoryMiB == 0 {
			t.Errorf("%s: no memory is told", r.Load)
		}
	}
	for name, want := range map[string]int{"get Pod": 80, "list all Pods": 20, "patch Pod status": 40, "server-side apply": 20, "watch, 5 watchers": 50,
		"stages of create Pod": 5, "delete Pod": 40, "idle": 0} {
		if got, ran := counts[name]; !ran || got != want {
			t.Errorf("%s: %d of %d, ran: %t", name, got, want, ran)
		}
	}
	created := results[slices.IndexFunc(results, func(r bench.Result) bool { return r.Load == "stages of create ConfigMap" })]
	var stages []string
	for _, s := range created.Stages {
		stages = append(stages, s.Name)
	}
	for _, want := range []string{"authenticate", "limit", "authorize", "decode", "default", "mutate-admit", "validate", "validate-admit", "store", "commit", "encode"} {
		if !slices.Contains(stages, want) {
			t.Errorf("stage %s is not measured: %v", want, stages)
		}
	}
	var table bytes.Buffer
	if err := bench.PrintStages(&table, results); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(table.String(), "\n"); len(lines) < 12 || !strings.Contains(lines[1], "create ConfigMap") {
		t.Errorf("the table of stages:\n%s", table.String())
	}
	// No loop empties namespaces here; that the run removed its own objects is seen all the same.
	api := kubernetes.NewForConfigOrDie(server.Config())
	if pods, err := api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); err != nil || len(pods.Items) > 0 {
		t.Errorf("%d pods are left, %v", len(pods.Items), err)
	}
	if maps, err := api.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{LabelSelector: "l"}); err != nil || len(maps.Items) > 0 {
		t.Errorf("%d ConfigMaps are left, %v", len(maps.Items), err)
	}
}

func TestFailuresAreCounted(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.Method == http.MethodDelete || strings.Contains(req.URL.Path, "serviceaccounts"):
		case strings.HasSuffix(req.URL.Path, "/namespaces"):
			w.WriteHeader(http.StatusCreated)
		default:
			http.Error(w, "out of order", http.StatusTeapot)
		}
	}))
	defer refusing.Close()
	var results []bench.Result
	err := bench.Run(t.Context(), bench.Config{Server: &rest.Config{Host: refusing.URL}, Run: []string{"create"}, Objects: 3, Clients: 2,
		Report: func(r bench.Result) { results = append(results, r) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 || results[0].Failed != 3 || !strings.Contains(results[0].FirstError, "out of order") {
		t.Errorf("results %+v", results)
	}
	var line bytes.Buffer
	if err := bench.Print(&line, results[0]); err != nil || !strings.Contains(line.String(), "FAILED 3") {
		t.Errorf("%q, %v", line.String(), err)
	}
}

func TestAServerThatTellsNoStages(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			w.WriteHeader(http.StatusCreated)
		}
	}))
	defer silent.Close()
	err := bench.Run(context.Background(), bench.Config{Server: &rest.Config{Host: silent.URL}, Run: []string{"stages"}, Objects: 1, Clients: 1, Samples: 1})
	if err == nil || !strings.Contains(err.Error(), bench.ErrNoStages.Error()) {
		t.Errorf("the error is %v", err)
	}
}

func TestUnknownLoadsAreRefused(t *testing.T) {
	err := bench.Run(t.Context(), bench.Config{Server: &rest.Config{Host: "https://127.0.0.1:1"}, Run: []string{"sail"}})
	if err == nil || !strings.Contains(err.Error(), "sail") || !strings.Contains(err.Error(), "podstart") {
		t.Errorf("the error does not say what is known: %v", err)
	}
}

func TestTheListenerIsFound(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if pid, err := bench.Listener("/proc", "https://"+l.Addr().String()); err != nil || pid != os.Getpid() {
		t.Errorf("process %d, %v; this is %d", pid, err, os.Getpid())
	}
	if pid, err := bench.Listener("/proc", "https://192.0.2.1:6443"); err != nil || pid != 0 {
		t.Errorf("of another machine: %d, %v", pid, err)
	}
}
