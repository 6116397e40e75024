package volume

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

func (j *job) fsGroup() *int64 {
	if s := j.pod.Spec.SecurityContext; s != nil {
		return s.FSGroup
	}
	return nil
}

// own gives a tree to the pod's fsGroup, if it has one: the group may read, and unless readOnly write, and what is made later belongs to
// it too. Source: API documentation of PodSecurityContext.fsGroup.
func (j *job) own(dir string, readOnly bool) error {
	group := j.fsGroup()
	if group == nil {
		return nil
	}
	files, folders := os.FileMode(0o660), os.FileMode(0o770)
	if readOnly {
		files, folders = 0o440, 0o550
	}
	return filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, int(*group)); err != nil {
			return err
		}
		if e.Type()&os.ModeSymlink != 0 {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | files
		if e.IsDir() {
			mode = info.Mode().Perm() | folders | os.ModeSetgid
		}
		return os.Chmod(path, mode)
	})
}

// onlyUser answers the user that all containers of a pod run as, or nil if they are several or the spec doesn't say.
func onlyUser(pod *corev1.Pod) *int64 {
	var user *int64
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			var u *int64
			if p := pod.Spec.SecurityContext; p != nil {
				u = p.RunAsUser
			}
			if s := list[i].SecurityContext; s != nil && s.RunAsUser != nil {
				u = s.RunAsUser
			}
			if u == nil || user != nil && *user != *u {
				return nil
			}
			user = u
		}
	}
	return user
}
