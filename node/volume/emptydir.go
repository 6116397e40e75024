package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// ready marks an emptyDir that was set up once: its content is the containers' from then on.
const readyMark = ".ready"

func (j *job) emptyDir(name string, s *corev1.EmptyDirVolumeSource) (mounted, error) {
	dir := j.dir("empty-dir", name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return mounted{}, err
	}
	fresh, err := j.medium(dir, s)
	if err != nil {
		return mounted{}, err
	}
	mark := filepath.Join(filepath.Dir(dir), "."+name+readyMark)
	if _, err := os.Stat(mark); err == nil && !fresh {
		return mounted{path: dir}, nil
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return mounted{}, err
	}
	if err := j.own(dir, false); err != nil {
		return mounted{}, err
	}
	return mounted{path: dir}, os.WriteFile(mark, nil, 0o600)
}

// medium mounts what an emptyDir stands on, unless that is the disk, and answers whether it did: after a reboot it has to again.
func (j *job) medium(dir string, s *corev1.EmptyDirVolumeSource) (fresh bool, err error) {
	if s.Medium == corev1.StorageMediumDefault || j.cfg.Mounter == nil {
		return false, nil
	}
	if is, err := j.cfg.Mounter.IsMount(dir); err != nil || is {
		return false, err
	}
	switch {
	case s.Medium == corev1.StorageMediumMemory:
		return true, j.cfg.Mounter.Tmpfs(dir, j.memorySize(s), "")
	case strings.HasPrefix(string(s.Medium), string(corev1.StorageMediumHugePages)):
		size, err := j.pageSize(s.Medium)
		if err != nil {
			return false, err
		}
		return true, j.cfg.Mounter.HugePages(dir, size)
	}
	return false, fmt.Errorf("emptyDir medium %q is unknown; known are \"\", Memory, HugePages and HugePages-<size>", s.Medium)
}

// memorySize is the smaller of the volume's own limit and the pod's memory limit, if it has one.
func (j *job) memorySize(s *corev1.EmptyDirVolumeSource) int64 {
	size := int64(0)
	limits := resourcehelper.PodLimits(j.pod, resourcehelper.PodResourcesOptions{})
	if everyLimited(j.pod) {
		size = limits.Memory().Value()
	}
	if s.SizeLimit != nil && s.SizeLimit.Value() > 0 && (size == 0 || s.SizeLimit.Value() < size) {
		size = s.SizeLimit.Value()
	}
	return size
}

func everyLimited(pod *corev1.Pod) bool {
	if pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero() {
		return true
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Resources.Limits.Memory().IsZero() {
			return false
		}
	}
	return true
}

// pageSize answers the page size of a huge pages medium: the one it names, or the only one that the pod requests.
func (j *job) pageSize(medium corev1.StorageMedium) (string, error) {
	text := strings.TrimPrefix(strings.TrimPrefix(string(medium), string(corev1.StorageMediumHugePages)), "-")
	if text == "" {
		sizes := map[string]bool{}
		for name := range resourcehelper.PodRequests(j.pod, resourcehelper.PodResourcesOptions{}) {
			if s, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
				sizes[s], text = true, s
			}
		}
		if len(sizes) != 1 {
			return "", fmt.Errorf("medium HugePages needs a pod that requests huge pages of exactly one size; it requests %d", len(sizes))
		}
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return "", fmt.Errorf("huge page size %q: %w", text, err)
	}
	return fmt.Sprintf("%dK", q.Value()/1024), nil
}

// EmptyDirUse is the use of an emptyDir with a limit.
type EmptyDirUse struct {
	Volume string
	Limit  *resource.Quantity
	Used   int64
}

// OverLimit answers the first emptyDir on disk of the pod that holds more than its sizeLimit, or nil. It walks the volume's files.
func (m *Manager) OverLimit(pod *corev1.Pod) *EmptyDirUse {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.IsZero() || v.EmptyDir.Medium != corev1.StorageMediumDefault {
			continue
		}
		dir, err := m.Path(pod, v.Name)
		if err != nil {
			continue
		}
		if used := diskUse(dir); used > v.EmptyDir.SizeLimit.Value() {
			return &EmptyDirUse{Volume: v.Name, Limit: v.EmptyDir.SizeLimit, Used: used}
		}
	}
	return nil
}

// diskUse sums what the files of a tree occupy. Files that vanish meanwhile count nothing.
func diskUse(dir string) int64 {
	var sum int64
	_ = filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			sum += blocks(info)
		}
		return nil
	})
	return sum
}
