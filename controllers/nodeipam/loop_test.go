package nodeipam

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/yare-project/yare/client"
	"github.com/yare-project/yare/client/fake"
	"github.com/yare-project/yare/loop"
)

func TestEachNodeGetsItsOwnRange(t *testing.T) {
	api := fake.New(nil)
	caches := client.NewCaches(client.CachesConfig{Transport: api, Log: slog.New(slog.DiscardHandler)})
	runtime, err := loop.New(loop.Config{Transport: func(string) client.Transport { return api }, Caches: caches, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.Add(Descriptor(Config{Cluster: netip.MustParsePrefix("10.42.0.0/22")})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go caches.Run(ctx)
	go func() { ended <- runtime.Run(ctx) }()
	for _, name := range []string{"a", "b", "c"} {
		api.MustCreate(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	nodes := client.Of[*corev1.Node](api)
	ranges := func() map[string]string {
		out := map[string]string{}
		list, err := nodes.List(ctx, "", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range list {
			if n.Spec.PodCIDR != "" {
				out[n.Spec.PodCIDR] = n.Name
			}
		}
		return out
	}
	if err := api.Wait(ctx, func() bool { return len(ranges()) == 3 }); err != nil {
		t.Fatalf("three nodes have the ranges %v", ranges())
	}
	if err := nodes.Delete(ctx, "", "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	api.MustCreate(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d"}})
	api.MustCreate(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "e"}})
	if err := api.Wait(ctx, func() bool { return len(ranges()) == 4 }); err != nil {
		t.Fatalf("a new node did not get the range that another gave up: %v", ranges())
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
