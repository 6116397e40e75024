package dra_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/node/dra"
	"github.com/yare-project/yare/node/dra/fake"
)

func TestPreparedClaimsOutliveTheAgent(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	kept, gone := newPod("kept", "k"), newPod("gone", "g")
	b.claim("k", []string{"gpu"}, kept)
	b.claim("g", []string{"gpu"}, gone)
	b.prepare(kept, gone)
	b.restart(d)
	if diff := cmp.Diff([]string{"example.com/dev=k"}, b.devices(kept)); diff != "" {
		t.Errorf("devices after the restart (-want +got):\n%s", diff)
	}
	b.m.Sweep(b.ctx, func(uid types.UID) bool { return uid == kept.UID })
	b.until("what is left is undone", func() bool { return !b.m.Holds(gone.UID) })
	b.prepare(kept) // its sandbox is made anew
	b.restart(d)
	b.unprepare(kept)
	b.restart(d)
	if b.m.Holds(kept.UID) || b.m.Holds(gone.UID) {
		t.Error("what was undone is back")
	}
	calls(t, d, "prepare default/k", "prepare default/g", "unprepare default/g", "prepare default/k", "unprepare default/k")
}

// A crash between asking a driver and its answer: the claim is known, so that it is undone.
func TestWhatADriverWasAskedIsOnDiskBefore(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	release := d.Hang()
	defer release()
	_, cancel := b.behind(func(ctx context.Context) error { return b.m.Prepare(ctx, pod) })
	defer cancel()
	b.await(d, "prepare default/c")
	crashed, err := dra.New(dra.Config{Node: "n1", File: b.file, Transport: b.api})
	if err != nil {
		t.Fatal(err)
	}
	defer crashed.Close()
	if !crashed.Holds(pod.UID) {
		t.Error("the next agent does not know what the driver was asked")
	}
}

func TestDamagedFileIsRefused(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	b.prepare(pod)
	good, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{"empty": "", "truncated": string(good[:len(good)/2]), "garbage": "\x00\xff\x13", "of another shape": `[1,2]`, "an empty object": `{}`,
		"a null claim": `{"claims":[null]}`, "a claim without pods": `{"claims":[{"uid":"u","namespace":"n","name":"c"}]}`, "followed by more": string(good) + "{"} {
		if err := os.WriteFile(b.file, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := dra.New(dra.Config{Node: "n1", File: b.file, Transport: b.api})
		if err == nil || !strings.Contains(err.Error(), b.file+" is damaged (") || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v", name, err)
		}
		if now, _ := os.ReadFile(b.file); string(now) != body {
			t.Errorf("%s: the file was changed to %q", name, now)
		}
	}
	if err := os.WriteFile(b.file, good, 0o600); err != nil {
		t.Fatal(err)
	}
	b.restart(d)
	b.unprepare(pod)
	calls(t, d, "prepare default/c", "unprepare default/c")
}

func TestFullDiskFailsThePodBeforeADriverIsAsked(t *testing.T) {
	b := newBench(t)
	d := b.driver("gpu", fake.Options{})
	pod := newPod("p", "c")
	b.claim("c", []string{"gpu"}, pod)
	if err := os.WriteFile(b.dir+"/agent", nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	if err := b.m.Prepare(b.ctx, pod); err == nil || !strings.HasPrefix(err.Error(), "prepared devices: ") {
		t.Errorf("error %v", err)
	}
	calls(t, d)
	if err := os.Remove(b.dir + "/agent"); err != nil {
		t.Fatal(err)
	}
	b.prepare(pod)
	b.restart(d)
	if !b.m.Holds(pod.UID) {
		t.Error("the claim is not on disk once it can be")
	}
}
