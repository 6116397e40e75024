package dra

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestTotals counts by hand while slices come and go, and claims take devices and give them back.
func TestTotals(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	defer func() {
		if t.Failed() {
			t.Logf("replay with SEED=%d go test ./scheduler/dra -run %s", seed, t.Name())
		}
	}()
	r := rand.New(rand.NewPCG(seed, 1))
	b := shop(nil)
	gpu := class("gpu", `device.attributes["dra.example.com"].model == "x"`)
	gpu.Spec.ExtendedResourceName = ptr.To("example.com/gpu")
	b.SetClass("gpu", gpu)
	nodes := []*corev1.Node{}
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "z" + name[1:]}}})
	}
	type where struct{ node, zone string } // neither: everywhere
	at, models := map[string]where{}, map[string][]string{}
	held := map[string]*resourcev1.ResourceClaim{}
	for step := range 400 {
		pool := fmt.Sprint("p", r.IntN(5))
		switch r.IntN(3) {
		case 0:
			delete(at, pool)
			delete(models, pool)
			if r.IntN(3) == 0 {
				b.SetSlice(pool, nil)
				break
			}
			s := slice(pool)
			s.Spec.NodeName = nil
			var w where
			switch r.IntN(3) {
			case 0:
				w.node = nodes[r.IntN(3)].Name
				s.Spec.NodeName = &w.node
			case 1:
				w.zone = nodes[r.IntN(3)].Labels["zone"]
				s.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{w.zone}}}}}}
			default:
				s.Spec.AllNodes = ptr.To(true)
			}
			at[pool] = w
			for k := range r.IntN(4) {
				model := []string{"x", "y"}[r.IntN(2)]
				s.Spec.Devices = append(s.Spec.Devices, dev(fmt.Sprint("d", k), attr("model", model)))
				models[pool] = append(models[pool], model)
			}
			b.SetSlice(pool, s)
		default:
			name := fmt.Sprintf("%s/d%d", pool, r.IntN(4))
			if c := held[name]; c != nil {
				b.SetClaim(c, nil)
				delete(held, name)
				break
			}
			c := taken(name)
			if r.IntN(3) == 0 {
				c.Status.Allocation.Devices.Results[0].ShareID = ptr.To(c.UID)
			}
			held[name] = c
			b.SetClaim(nil, c)
		}
		for i, node := range nodes {
			var all, used int64
			for pool, w := range at {
				if w.node != "" && w.node != node.Name || w.zone != "" && w.zone != node.Labels["zone"] {
					continue
				}
				for k, model := range models[pool] {
					if model != "x" {
						continue
					}
					if all++; held[fmt.Sprintf("%s/d%d", pool, k)] != nil {
						used++
					}
				}
			}
			for _, name := range []corev1.ResourceName{"example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"} {
				if gotAll, gotUsed := b.Totals(name, i, node); gotAll != all || gotUsed != used {
					t.Fatalf("step %d: %s on node %s: %d of %d, want %d of %d", step, name, node.Name, gotUsed, gotAll, used, all)
				}
			}
		}
	}
	if all, used := b.Totals("example.com/nic", 0, nodes[0]); all != 0 || used != 0 {
		t.Errorf("a resource that no class stands for: %d of %d", used, all)
	}
}

// A device without the attribute that a class asks for makes its selector fail: then nothing counts on the node, as in kube-scheduler.
func TestTotalsWhereASelectorFails(t *testing.T) {
	b := shop([]*resourcev1.ResourceSlice{slice("p", dev("a", attr("model", "x")), dev("b"))})
	b.SetClass("gpu", class("gpu", `device.attributes["dra.example.com"].model == "x"`))
	if all, _ := b.Totals("deviceclass.resource.kubernetes.io/gpu", 0, testNode()); all != 0 {
		t.Errorf("%d devices count", all)
	}
}
