package dra

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/yare-project/yare/scheduler/explain"
	"github.com/yare-project/yare/scheduler/framework"
)

// BenchmarkDecide places pods that want one of eight devices on one of 5,000 nodes.
func BenchmarkDecide(b *testing.B) {
	const nodes, each = 5000, 8
	book := NewBook(Config{})
	book.SetClass("any", class("any", is("kind", "x")))
	all := framework.NewNodes()
	for n := range nodes {
		name := fmt.Sprintf("n%d", n)
		all.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		s := slice(name)
		s.Spec.NodeName = &name
		for d := range each {
			s.Spec.Devices = append(s.Spec.Devices, dev(fmt.Sprintf("d%d", d), attr("kind", "x"), attr("uuid", fmt.Sprint(n, d))))
		}
		book.SetSlice(name, s)
	}
	made, err := book.Factory(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	p := made.(*plugin)
	profile, err := framework.NewProfile("bench", framework.Set{PreFilter: []framework.PreFilterPlugin{p}, Filter: []framework.FilterPlugin{p}}, all, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		b.Fatal(err)
	}
	place := func(i int) {
		claim := claimOf(exact("r"))
		claim.Name, claim.UID = fmt.Sprintf("c%d", i), types.UID(fmt.Sprintf("c%d", i))
		book.SetClaim(nil, claim)
		pod, err := framework.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim.Name, UID: claim.UID},
			Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "r", ResourceClaimName: &claim.Name}}}}, all)
		if err != nil {
			b.Fatal(err)
		}
		c := profile.Begin(pod)
		d, why, err := profile.Decide(c)
		if err != nil || d == nil {
			b.Fatal(err, why)
		}
		if s := p.Reserve(c, d.Node); !s.OK() {
			b.Fatal(s.Message())
		}
		next := claim.DeepCopy() // it is written, and the watch brings it
		next.Status.Allocation = book.pending[claim.UID]
		book.SetClaim(claim, next)
		if i >= nodes*each/2 { // the oldest leaves
			old := book.claims[types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("c%d", i-nodes*each/2)}].claim
			book.SetClaim(old, nil)
		}
	}
	place(0)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		place(i)
	}
}

// BenchmarkExplain says what would let a pod have one of 40,000 devices that claims have all of.
func BenchmarkExplain(b *testing.B) {
	const nodes, each = 5000, 8
	book := NewBook(Config{})
	book.SetClass("any", class("any", is("kind", "x")))
	all := framework.NewNodes()
	for n := range nodes {
		name := fmt.Sprintf("n%d", n)
		all.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		s := slice(name)
		s.Spec.NodeName = &name
		for d := range each {
			s.Spec.Devices = append(s.Spec.Devices, dev(fmt.Sprintf("d%d", d), attr("kind", "x")))
			book.SetClaim(nil, used(fmt.Sprintf("c%d-%d", n, d), []string{"p"}, fmt.Sprintf("%s/d%d", name, d)))
		}
		book.SetSlice(name, s)
	}
	for key, e := range book.claims {
		e.claim.UID = types.UID(key.Name)
	}
	made, err := book.Factory(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	p := made.(*plugin)
	profile, err := framework.NewProfile("bench", framework.Set{PreFilter: []framework.PreFilterPlugin{p}, Filter: []framework.FilterPlugin{p}}, all, rand.New(rand.NewPCG(1, 1)))
	if err != nil {
		b.Fatal(err)
	}
	claim := claimOf(exact("r", count(3)))
	book.SetClaim(nil, claim)
	pod, err := framework.NewPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"},
		Spec: corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "r", ResourceClaimName: &claim.Name}}}}, all)
	if err != nil {
		b.Fatal(err)
	}
	c := profile.Begin(pod)
	got, why, err := profile.Decide(c)
	if err != nil || got != nil {
		b.Fatal(err, got)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(explain.Pod(c, why)) == 0 {
			b.Fatal("nothing to say")
		}
	}
}
