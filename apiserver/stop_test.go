package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/internal/resource"
	"github.com/yare-project/yare/kind"
)

// Many clients write while the server is told to stop. Whatever was answered is stored; whatever was not was not begun; and what had begun is
// answered, however long after the order it ends.
func TestTheEndCutsNobodyShort(t *testing.T) {
	entered, finish := make(chan struct{}, 8), make(chan struct{})
	h := start(t, func(c *apiserverConfig) {
		c.Mutators = []kind.Mutator{plugin{mutate: func(r *kind.AdmissionRequest) error {
			if strings.HasPrefix(r.Ref.Name, "slow") {
				entered <- struct{}{}
				<-finish
			}
			return nil
		}}}
	})
	s := h.serve(t, true)
	create := func(c *http.Client, name string) (int, error) {
		resp, err := c.Post(s.url("/api/v1/namespaces/ns/configmaps"), "application/json", strings.NewReader(`{"metadata":{"name":"`+name+`"}}`))
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	var watches sync.WaitGroup
	for i := range 6 {
		resp := must(s.client(i%2 == 0).Get(s.url("/api/v1/configmaps?watch=1")))
		watches.Go(func() {
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Errorf("a watch did not end cleanly: %v", err)
			}
		})
	}
	var slow sync.WaitGroup
	for i := range 4 {
		c := s.client(i%2 == 0)
		slow.Go(func() {
			if code, err := create(c, fmt.Sprintf("slow-%d", i)); code != 201 || err != nil {
				t.Errorf("a request that had begun was answered %d, %v", code, err)
			}
		})
	}
	for range 4 {
		<-entered
	}
	var done atomic.Int64
	outcomes := make([]map[string]bool, 16)
	var writers sync.WaitGroup
	for i := range outcomes {
		c := s.client(i%2 == 0)
		outcomes[i] = map[string]bool{}
		writers.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("w-%d-%d", i, n)
				code, err := create(c, name)
				outcomes[i][name] = err == nil && code == 201
				if err != nil {
					return
				}
				if code != 201 {
					t.Errorf("%s was answered %d", name, code)
				}
				done.Add(1)
			}
		})
	}
	waitFor(t, "the writers to be at work", func() bool { return done.Load() > 200 })
	s.stop()
	writers.Wait()
	watches.Wait()
	if conn, err := net.Dial("tcp", s.addr); err == nil {
		conn.Close()
		t.Error("a new connection is accepted")
	}
	select {
	case err := <-s.end:
		t.Errorf("the server ended before its last requests: %v", err)
	default:
	}
	close(finish)
	slow.Wait()
	if err := <-s.end; err != nil {
		t.Error(err)
	}
	h.sameAsStored(t, outcomes)
}

// sameAsStored compares what clients were told with what there is.
func (h *harness) sameAsStored(t *testing.T, outcomes []map[string]bool) {
	t.Helper()
	refused := 0
	for _, writer := range outcomes {
		for name, told := range writer {
			_, err := h.local().Get(context.Background(), resource.Ref{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Namespace: "ns", Name: name}, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			if stored := err == nil; stored != told {
				t.Errorf("%s: acknowledged %v, stored %v", name, told, stored)
			}
			if !told {
				refused++
			}
		}
	}
	if refused == 0 {
		t.Error("nobody was refused: the server was not stopped under load")
	}
}

// Until the delay is over, an unready server serves.
func TestAnUnreadyServerStillServes(t *testing.T) {
	h := start(t)
	h.server.Unready()
	if a := h.do("GET", "/readyz", ""); a.code != 500 {
		t.Errorf("/readyz: %d", a.code)
	}
	if a := h.do("GET", "/livez", ""); a.code != 200 {
		t.Errorf("/livez: %d", a.code)
	}
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"a"}}`); a.code != 201 {
		t.Errorf("a write: %+v", a)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	req := must(http.NewRequestWithContext(ctx, "GET", h.http.URL+"/api/v1/configmaps?watch=1&resourceVersion=1", nil))
	resp := must(h.http.Client().Do(req))
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a watch ended by itself: %v", err)
	}
}
