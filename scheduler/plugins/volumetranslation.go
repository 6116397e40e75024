package plugins

import (
	"fmt"
	"maps"
	"sync"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"github.com/yare-project/yare/internal/csimigration"
	"github.com/yare-project/yare/scheduler/framework"
)

// fewTranslations is how many are kept before those of volumes that are gone are looked for.
const fewTranslations = 1024

// translations remembers PersistentVolumes of in-tree plugins as their drivers' volumes, for as long as somebody else has the volume. A volume that changes is another object,
// so that nothing goes stale. It may be used by several goroutines at once; the zero value is ready.
type translations struct {
	mu    sync.Mutex
	known map[weak.Pointer[corev1.PersistentVolume]]translation
	many  int // how many there are when it is time to look for those that are gone
}

type translation struct {
	volume *corev1.PersistentVolume
	err    error
}

// of is the driver's volume that v stands for; v itself if it is of no in-tree plugin.
func (t *translations) of(v *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	if csimigration.PluginOf(v) == "" {
		return v, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := weak.Make(v)
	got, ok := t.known[key]
	if !ok {
		t.tidy()
		got.volume, got.err = csimigration.Translate(v)
		t.known[key] = got
	}
	return got.volume, got.err
}

// tidy forgets volumes that are gone, now and then.
func (t *translations) tidy() {
	if t.known == nil {
		t.known, t.many = map[weak.Pointer[corev1.PersistentVolume]]translation{}, fewTranslations
	}
	if len(t.known) >= t.many {
		maps.DeleteFunc(t.known, func(v weak.Pointer[corev1.PersistentVolume], _ translation) bool { return v.Value() == nil })
		t.many = max(fewTranslations, 2*len(t.known))
	}
}

// handle is who attaches a volume, and by what name; empty if nobody does, or if the driver can't handle it.
func (t *translations) handle(v *corev1.PersistentVolume) (driver, id string) {
	if v.Spec.CSI == nil && !csimigration.Counted(csimigration.PluginOf(v)) {
		return "", ""
	}
	got, err := t.of(v)
	if err != nil {
		return "", ""
	}
	return got.Spec.CSI.Driver, got.Spec.CSI.VolumeHandle
}

// diskRemedies says which of a pod's own disks no driver can handle.
func diskRemedies(pod *framework.Pod) (out []framework.Remedy) {
	for k := range pod.Disks {
		if d := &pod.Disks[k]; d.Err != nil {
			out = append(out, framework.Remedy{Kind: framework.Storage, Plugin: NodeVolumeLimits, Name: d.Driver,
				Do: fmt.Sprintf("a source that CSI driver %s, which took over %s, can handle (%v)", d.Driver, d.Plugin, d.Err)})
		}
	}
	return out
}
