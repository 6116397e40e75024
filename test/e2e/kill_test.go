package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// attempt is one version of a ConfigMap.
type attempt struct {
	value   string
	version uint64 // 0 until it is acknowledged
}

// diary is what one client did to its own ConfigMaps: of each the last version that was acknowledged, and one that may have been lost with
// the server.
type diary struct {
	acknowledged map[string]attempt
	open         map[string]string
	deleted      map[string]bool
	highest      uint64 // resourceVersion that was seen, of relaxed objects too
	fault        error
}

// TestKillUnderLoad: a server that is killed at any moment has every acknowledged write when it is back, none of them half, and never gives
// out a resourceVersion again.
func TestKillUnderLoad(t *testing.T) {
	seed, rounds := uint64(time.Now().UnixNano()), 3
	if os.Getenv("YARE_SOAK") != "" {
		rounds = 60
	}
	if text := os.Getenv("YARE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("YARE_SEED: %v", err)
		}
	}
	t.Logf("replay with: YARE_SEED=%d go test ./test/e2e -run TestKillUnderLoad", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := newClusterAt(t, 17)
	defer c.remove()
	const clients = 6
	diaries := make([]*diary, clients)
	for i := range diaries {
		diaries[i] = &diary{acknowledged: map[string]attempt{}, open: map[string]string{}, deleted: map[string]bool{}}
	}
	total := 0
	for round := range rounds {
		p := c.plane(t)
		verify(t, c.api(), diaries)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		var clientsDone sync.WaitGroup
		for i, d := range diaries {
			api, source := c.api(), rand.New(rand.NewPCG(seed, uint64(round*clients+i+1)))
			clientsDone.Go(func() { d.keep(t.Context(), api, i, round, source) })
		}
		<-time.After(time.Duration(100+random.IntN(700)) * time.Millisecond)
		p.kill()
		clientsDone.Wait()
		total = 0
		for _, d := range diaries {
			if d.fault != nil {
				t.Fatalf("round %d: %v\n%s", round, d.fault, p.err)
			}
			total += len(d.acknowledged)
		}
	}
	p := c.plane(t)
	verify(t, c.api(), diaries)
	t.Logf("%d ConfigMaps after %d kills", total, rounds)
	if total < 10*rounds {
		t.Errorf("only %d ConfigMaps: the load was none", total)
	}
	p.stop()
}

// keep writes until the server is gone.
func (d *diary) keep(ctx context.Context, api kubernetes.Interface, client, round int, random *rand.Rand) {
	for n := 0; ; n++ {
		var err error
		switch names := slices.Sorted(maps.Keys(d.acknowledged)); {
		case random.IntN(4) == 0:
			err = d.renew(ctx, api, client)
		case len(names) == 0 || random.IntN(2) == 0:
			err = d.create(ctx, api, fmt.Sprintf("c%d-r%d-n%d", client, round, n))
		case random.IntN(8) == 0:
			err = d.remove(ctx, api, names[random.IntN(len(names))])
		default:
			err = d.update(ctx, api, names[random.IntN(len(names))], fmt.Sprintf("r%d-n%d", round, n))
		}
		var refused apierrors.APIStatus
		if errors.As(err, &refused) {
			d.fault = fmt.Errorf("client %d: a valid request is refused: %w", client, err)
		}
		if err != nil || d.fault != nil {
			return
		}
	}
}

// content is a ConfigMap whose parts agree, so that half of one would show.
func content(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"value": value}}, Data: map[string]string{"first": value, "bulk": strings.Repeat(value, 200), "last": value}}
}

func (d *diary) create(ctx context.Context, api kubernetes.Interface, name string) error {
	d.open[name] = name
	got, err := api.CoreV1().ConfigMaps("default").Create(ctx, content(name, name), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return d.acknowledge(name, name, got)
}

func (d *diary) update(ctx context.Context, api kubernetes.Interface, name, value string) error {
	d.open[name] = value
	next := content(name, value)
	next.ResourceVersion = fmt.Sprint(d.acknowledged[name].version)
	got, err := api.CoreV1().ConfigMaps("default").Update(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	return d.acknowledge(name, value, got)
}

func (d *diary) remove(ctx context.Context, api kubernetes.Interface, name string) error {
	d.deleted[name] = true
	if err := api.CoreV1().ConfigMaps("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	delete(d.acknowledged, name)
	return nil
}

func (d *diary) acknowledge(name, value string, got *corev1.ConfigMap) error {
	version, err := d.see(got)
	if err != nil {
		return err
	}
	d.acknowledged[name] = attempt{value, version}
	delete(d.open, name)
	return nil
}

// see checks that versions only grow for one who writes one thing after another.
func (d *diary) see(got metav1.Object) (uint64, error) {
	version, err := strconv.ParseUint(got.GetResourceVersion(), 10, 64)
	if err == nil && version <= d.highest {
		err = fmt.Errorf("%s got resourceVersion %d after %d had been given out", got.GetName(), version, d.highest)
	}
	if err != nil {
		d.fault = err
		return 0, err
	}
	d.highest = version
	return version, nil
}

// renew writes a Lease: acknowledged before it is on disk, so it may be lost, but its resourceVersion must not come again.
func (d *diary) renew(ctx context.Context, api kubernetes.Interface, client int) error {
	leases, name := api.CoordinationV1().Leases("default"), fmt.Sprintf("lease-%d", client)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}, metav1.CreateOptions{})
	case err == nil:
		lease.Spec.RenewTime = &now
		lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	_, err = d.see(lease)
	return err
}

// verify compares what the server has with what it promised, and settles what was open.
func verify(t *testing.T, api kubernetes.Interface, diaries []*diary) {
	t.Helper()
	list, err := api.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]*corev1.ConfigMap{}
	for i := range list.Items {
		have[list.Items[i].Name] = &list.Items[i]
	}
	delete(have, "kube-root-ca.crt")
	for _, d := range diaries {
		d.verify(t, have)
		if now, _ := strconv.ParseUint(list.ResourceVersion, 10, 64); now < d.highest {
			t.Errorf("the list is of resourceVersion %d, but %d had been given out", now, d.highest)
		}
	}
	for name := range have {
		t.Errorf("ConfigMap %s is there, and nobody made it or it was deleted", name)
	}
}

func (d *diary) verify(t *testing.T, have map[string]*corev1.ConfigMap) {
	t.Helper()
	known := maps.Clone(d.acknowledged)
	for name := range d.open {
		known[name] = d.acknowledged[name]
	}
	for name, promised := range known {
		got := have[name]
		delete(have, name)
		switch {
		case got == nil && (promised.version == 0 || d.deleted[name]):
			delete(d.acknowledged, name) // a create that was not acknowledged, or a delete that was done
		case got == nil:
			t.Errorf("ConfigMap %s is lost: %+v had been acknowledged", name, promised)
		default:
			d.settle(t, got, promised)
		}
	}
	clear(d.open)
	clear(d.deleted)
}

// settle accepts the acknowledged version, or, whole and newer, the one that was on its way.
func (d *diary) settle(t *testing.T, got *corev1.ConfigMap, promised attempt) {
	t.Helper()
	version, err := strconv.ParseUint(got.ResourceVersion, 10, 64)
	if err != nil {
		t.Error(err)
	}
	value := got.Data["first"]
	if whole := content(got.Name, value); !maps.Equal(whole.Data, got.Data) || !maps.Equal(whole.Labels, got.Labels) {
		t.Errorf("ConfigMap %s is half there: %v %v", got.Name, got.Labels, got.Data)
	}
	open, wasOpen := d.open[got.Name]
	same := value == promised.value && version == promised.version
	newer := wasOpen && value == open && version > promised.version
	if !same && !newer {
		t.Errorf("ConfigMap %s is %q at %d; acknowledged was %+v, on its way %q", got.Name, value, version, promised, open)
	}
	d.acknowledged[got.Name] = attempt{value, version}
	d.highest = max(d.highest, version)
}
