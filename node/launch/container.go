package launch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/environ"
	"github.com/yare-project/yare/node/machine"
)

// Image is what the runtime knows of a container's image.
type Image struct {
	Ref  string // what to run: the image's id
	UID  *int64 // the user that the image names by number
	User string // the user that the image names by name
}

// Container is one container to make.
type Container struct {
	Pod     *corev1.Pod
	Spec    *corev1.Container
	Attempt int
	Image   Image
	Env     []environ.Var
	// Mounts are those of the pod's volumes.
	Mounts []*runtimeapi.Mount
	// Devices are those of the pod's claims that the container gets, by their CDI names.
	Devices []string
	PodIPs  []string
	// Target is the id of the container whose process namespace an ephemeral container joins, or empty.
	Target string
}

// Container answers a container's config, after writing the files that it mounts.
func (b *Builder) Container(in Container) (*runtimeapi.ContainerConfig, error) {
	c := in.Spec
	if err := checkNonRoot(in.Pod, c, in.Image); err != nil {
		return nil, err
	}
	if len(c.VolumeDevices) > 0 {
		return nil, fmt.Errorf("container %s: this node does not support raw block volumes (volumeDevices)", c.Name)
	}
	security, err := b.security(in)
	if err != nil {
		return nil, err
	}
	mounts, err := b.files(in)
	if err != nil {
		return nil, err
	}
	logDir := filepath.Join(b.LogDir(in.Pod), c.Name)
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, fmt.Errorf("log folder: %w", err)
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.Attempt)},
		Image:       &runtimeapi.ImageSpec{Image: in.Image.Ref, UserSpecifiedImage: c.Image},
		Command:     environ.ExpandAll(c.Command, in.Env),
		Args:        environ.ExpandAll(c.Args, in.Env),
		WorkingDir:  c.WorkingDir,
		Labels:      containerLabels(in.Pod, c),
		Annotations: annotations(in.Pod, c, in.Attempt),
		Mounts:      append(in.Mounts, mounts...),
		LogPath:     LogPath(c.Name, in.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  stopSignal(c),
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: b.Resources(in.Pod, c), SecurityContext: security},
	}
	for _, d := range in.Devices {
		config.CDIDevices = append(config.CDIDevices, &runtimeapi.CDIDevice{Name: d})
	}
	for _, v := range in.Env {
		config.Envs = append(config.Envs, &runtimeapi.KeyValue{Key: v.Name, Value: []byte(v.Value)})
	}
	return config, nil
}

// files writes and mounts the files that every container gets: /etc/hosts and its termination message.
func (b *Builder) files(in Container) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	mounted := map[string]bool{}
	for _, m := range in.Mounts {
		mounted[filepath.Clean(m.ContainerPath)] = true
	}
	if (len(in.PodIPs) > 0 || in.Pod.Spec.HostNetwork) && !mounted["/etc/hosts"] {
		content, err := b.Hosts(in.Pod, in.PodIPs)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(b.PodDir(in.Pod.UID), "etc-hosts")
		if err := writeFile(path, content, 0o644); err != nil {
			return nil, fmt.Errorf("hosts file: %w", err)
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: path, SelinuxRelabel: true})
	}
	if p := in.Spec.TerminationMessagePath; p != "" && !mounted[filepath.Clean(p)] {
		path := b.TerminationFile(in.Pod.UID, in.Spec.Name, in.Attempt)
		// Any user of the container must be able to write it.
		if err := writeFile(path, nil, 0o666); err != nil {
			return nil, fmt.Errorf("termination message file: %w", err)
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: p, HostPath: path, SelinuxRelabel: true})
	}
	return out, nil
}

func containerLabels(pod *corev1.Pod, c *corev1.Container) map[string]string {
	return map[string]string{LabelPodName: pod.Name, LabelPodNamespace: pod.Namespace, LabelPodUID: string(pod.UID), LabelContainerName: c.Name}
}

func annotations(pod *corev1.Pod, c *corev1.Container, attempt int) map[string]string {
	a := map[string]string{
		AnnotationHash:              machine.Hash(c),
		AnnotationRestartCount:      strconv.Itoa(attempt),
		AnnotationTerminationPath:   c.TerminationMessagePath,
		AnnotationTerminationPolicy: string(c.TerminationMessagePolicy),
	}
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
		a[annotationPodGrace] = strconv.FormatInt(*g, 10)
	}
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		a[annotationDeletionGrace] = strconv.FormatInt(*g, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		if b, err := json.Marshal(c.Lifecycle.PreStop); err == nil {
			a[annotationPreStop] = string(b)
		}
	}
	if len(c.Ports) > 0 {
		if b, err := json.Marshal(c.Ports); err == nil {
			a[annotationPorts] = string(b)
		}
	}
	return a
}

// Orphan restores what is needed to end a container whose pod the API no longer has: its pod's name and grace, and its own hook.
func Orphan(labels, notes map[string]string) (*corev1.Pod, *corev1.Container) {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = labels[LabelPodName], labels[LabelPodNamespace], uid(labels[LabelPodUID])
	pod.Spec.TerminationGracePeriodSeconds = number(notes[annotationPodGrace])
	pod.DeletionGracePeriodSeconds = number(notes[annotationDeletionGrace])
	name := labels[LabelContainerName]
	if name == "" {
		return pod, nil
	}
	c := &corev1.Container{Name: name, TerminationMessagePath: notes[AnnotationTerminationPath]}
	if s := notes[annotationPreStop]; s != "" {
		var hook corev1.LifecycleHandler
		if json.Unmarshal([]byte(s), &hook) == nil {
			c.Lifecycle = &corev1.Lifecycle{PreStop: &hook}
		}
	}
	if s := notes[annotationPorts]; s != "" {
		if json.Unmarshal([]byte(s), &c.Ports) != nil {
			c.Ports = nil
		}
	}
	return pod, c
}

func number(s string) *int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
