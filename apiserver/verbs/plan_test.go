package verbs

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

// TestPlanDelete is the table of what a delete does, by the state it finds and what it asks for.
func TestPlanDelete(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	plain := &kind.Kind{}
	orphaning := &kind.Kind{OrphanByDefault: true}
	graceful := &kind.Kind{Grace: func(_ kind.Object, o *metav1.DeleteOptions) int64 {
		if o.GracePeriodSeconds != nil {
			return *o.GracePeriodSeconds
		}
		return 30
	}}
	type state struct {
		finalizers []string
		deleted    bool
		grace      int64
	}
	seconds := func(n int64) metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: &n} }
	policy := func(p metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &p}
	}
	for _, c := range []struct {
		name   string
		kind   *kind.Kind
		old    state
		opts   metav1.DeleteOptions
		remove bool
		told   bool // the answer to a removal shows it as deleted
		same   bool
		grace  int64
		at     time.Duration
		finals []string
	}{
		{name: "nothing holds it", kind: plain, remove: true},
		{name: "a grace period means nothing to a plain kind", kind: plain, opts: seconds(20), remove: true},
		{name: "a finalizer holds it", kind: plain, old: state{finalizers: []string{"x/y"}}, finals: []string{"x/y"}},
		{name: "orphan", kind: plain, opts: policy("Orphan"), finals: []string{"orphan"}},
		{name: "foreground", kind: plain, opts: policy("Foreground"), finals: []string{"foregroundDeletion"}},
		{name: "old-style orphan", kind: plain, opts: metav1.DeleteOptions{OrphanDependents: ptr.To(true)}, finals: []string{"orphan"}},
		{name: "old-style cascade", kind: orphaning, opts: metav1.DeleteOptions{OrphanDependents: ptr.To(false)}, remove: true},
		{name: "the kind orphans", kind: orphaning, finals: []string{"orphan"}},
		{name: "the request overrules the kind", kind: orphaning, opts: policy("Background"), remove: true},
		{name: "the request overrules a finalizer", kind: plain, old: state{finalizers: []string{"orphan", "x/y"}}, opts: policy("Foreground"), finals: []string{"x/y", "foregroundDeletion"}},
		{name: "a finalizer decides", kind: plain, old: state{finalizers: []string{"orphan"}}, finals: []string{"orphan"}},
		{name: "background takes the finalizer off", kind: plain, old: state{finalizers: []string{"foregroundDeletion"}, deleted: true}, opts: policy("Background"), remove: true},
		{name: "again", kind: plain, old: state{finalizers: []string{"x/y"}, deleted: true}, same: true},
		{name: "graceful", kind: graceful, grace: 30, at: 30 * time.Second},
		{name: "graceful, its own time", kind: graceful, opts: seconds(7), grace: 7, at: 7 * time.Second},
		{name: "negative is one second", kind: graceful, opts: seconds(-5), grace: 1, at: time.Second},
		{name: "at once", kind: graceful, opts: seconds(0), remove: true, told: true},
		{name: "at once but held", kind: graceful, old: state{finalizers: []string{"x/y"}}, opts: seconds(0), finals: []string{"x/y"}},
		{name: "again, graceful", kind: graceful, old: state{deleted: true, grace: 30}, same: true},
		{name: "slower", kind: graceful, old: state{deleted: true, grace: 30}, opts: seconds(60), same: true},
		{name: "faster", kind: graceful, old: state{deleted: true, grace: 30}, opts: seconds(10), grace: 10, at: 80 * time.Second},
		{name: "now", kind: graceful, old: state{deleted: true, grace: 30}, opts: seconds(0), remove: true},
		{name: "now but held", kind: graceful, old: state{deleted: true, grace: 30, finalizers: []string{"x/y"}}, opts: seconds(0), at: 70 * time.Second, finals: []string{"x/y"}},
		{name: "more propagation keeps the grace", kind: graceful, old: state{deleted: true, grace: 30}, opts: policy("Foreground"), grace: 30, at: 100 * time.Second, finals: []string{"foregroundDeletion"}},
	} {
		old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: c.old.finalizers}}
		if c.old.deleted {
			old.DeletionTimestamp, old.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(100 * time.Second)}, &c.old.grace
		}
		before := old.DeepCopy()
		next, remove := planDelete(c.kind, old, &c.opts, now)
		if !slices.Equal(old.Finalizers, before.Finalizers) || !old.DeletionTimestamp.Equal(before.DeletionTimestamp) {
			t.Errorf("%s: the stored object was changed", c.name)
		}
		switch {
		case remove != c.remove, remove && c.told != (next != nil), c.same != (next == nil && !remove):
			t.Errorf("%s: remove %v, next %+v", c.name, remove, next)
		case next == nil:
		case *next.GetDeletionGracePeriodSeconds() != c.grace || !next.GetDeletionTimestamp().Time.Equal(now.Add(c.at)) || !slices.Equal(next.GetFinalizers(), c.finals):
			t.Errorf("%s: grace %d at %v, finalizers %v", c.name, *next.GetDeletionGracePeriodSeconds(), next.GetDeletionTimestamp().Sub(now), next.GetFinalizers())
		}
	}
}

func TestManagerOf(t *testing.T) {
	for agent, want := range map[string]string{"kubectl/v1.36 (linux)": "kubectl", "": "", "a\x00b/1": "ab"} {
		if got := ManagerOf(agent); got != want {
			t.Errorf("%q: %q", agent, got)
		}
	}
}

func FuzzContinue(f *testing.F) {
	f.Add(after("ns/", "ns/a", 7, time.Unix(1_800_000_000, 0)))
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ")
	f.Fuzz(func(t *testing.T, s string) {
		if token, err := decodeContinue(s); err == nil && (token.Start == "" || token.Revision == 0) {
			t.Fatalf("accepted %+v", token)
		}
	})
}
