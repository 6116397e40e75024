package status

import (
	"math"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/machine"
)

// unknownCode is the exit code reported for a container whose real one is lost.
const unknownCode = 137

func (g *generator) containers(specs []corev1.Container, old []corev1.ContainerStatus, init bool) []corev1.ContainerStatus {
	if len(specs) == 0 {
		return nil
	}
	out := make([]corev1.ContainerStatus, 0, len(specs))
	for i := range specs {
		out = append(out, g.container(&specs[i], find(old, specs[i].Name), init))
	}
	if !init {
		sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	}
	return out
}

func find(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func (g *generator) container(c *corev1.Container, old *corev1.ContainerStatus, init bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, VolumeMounts: g.mounts(c)}
	if old != nil {
		s.RestartCount, s.LastTerminationState = old.RestartCount, old.LastTerminationState
	}
	newest, before := g.lastTwo(c.Name)
	if newest == nil {
		g.absent(&s, c, old, init)
	} else {
		g.present(&s, c, newest)
		if before != nil && before.State == machine.Exited {
			s.LastTerminationState = corev1.ContainerState{Terminated: g.terminated(before)}
		} else if old != nil && old.ContainerID != s.ContainerID && old.State.Terminated != nil {
			s.LastTerminationState = corev1.ContainerState{Terminated: old.State.Terminated}
		}
	}
	g.waiting(&s, c, newest, init)
	g.readiness(&s, c, newest, init)
	return s
}

// lastTwo answers the newest container of that name that the user should see, and the one before it.
func (g *generator) lastTwo(name string) (newest, before *machine.Container) {
	list := g.Machine.Observed.Containers
	for i := range list {
		c := &list[i]
		if c.Name != name {
			continue
		}
		if newest == nil {
			newest = c
		} else {
			return newest, c
		}
	}
	return newest, nil
}

func (g *generator) present(s *corev1.ContainerStatus, c *corev1.Container, got *machine.Container) {
	s.ContainerID = g.id(got.ID)
	s.RestartCount = int32(got.Attempt)
	s.ImageID = got.ImageRef
	if got.Image != "" && !strings.HasPrefix(got.Image, "sha256:") {
		s.Image = got.Image
	}
	if got.User != nil {
		s.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: got.User.Uid, GID: got.User.Gid, SupplementalGroups: got.User.SupplementalGroups}}
	}
	if got.StopSignal != runtimeapi.Signal_RUNTIME_DEFAULT {
		signal := corev1.Signal(strings.Replace(strings.Replace(got.StopSignal.String(), "PLUS", "+", 1), "MINUS", "-", 1))
		s.StopSignal = &signal
	}
	s.AllocatedResources = c.Resources.Requests
	s.Resources = g.resources(c, got)
	switch {
	case got.State == machine.Running && !g.Machine.Memory.Hooks[got.ID]:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(got.StartedAt.Truncate(time.Second))}
	case got.State == machine.Exited:
		s.State.Terminated = g.terminated(got)
	case got.State == machine.Unknown:
		s.State.Terminated = lost("The container could not be located when the pod was terminated")
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: g.creating()}
	}
}

func (g *generator) id(id string) string { return g.Runtime + "://" + id }

func (g *generator) terminated(c *machine.Container) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, ContainerID: g.id(c.ID),
		FinishedAt: metav1.NewTime(c.FinishedAt.Truncate(time.Second))}
	if !c.StartedAt.IsZero() {
		t.StartedAt = metav1.NewTime(c.StartedAt.Truncate(time.Second))
	}
	if t.Reason == "" {
		t.Reason = "Error"
		if t.ExitCode == 0 {
			t.Reason = "Completed"
		}
	}
	return t
}

func lost(message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", Message: message, ExitCode: unknownCode}
}

// creating is the waiting reason of a container that nothing is known about.
func (g *generator) creating() string {
	if len(g.Pod.Spec.InitContainers) > 0 {
		return "PodInitializing"
	}
	return "ContainerCreating"
}

// absent fills in a container that the runtime does not have.
func (g *generator) absent(s *corev1.ContainerStatus, c *corev1.Container, old *corev1.ContainerStatus, init bool) {
	switch {
	case old != nil && old.State.Terminated != nil:
		*s = *old.DeepCopy()
	case init && !machine.IsSidecar(c) && g.mainsExist():
		s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed",
			Message: "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"}
	case old != nil && old.State.Running != nil && g.Plan.Terminating:
		s.ContainerID, s.Image, s.ImageID = old.ContainerID, old.Image, old.ImageID
		s.State.Terminated = lost("The container could not be located when the pod was terminated")
	case old != nil && old.State.Running != nil:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: g.creating()}
		if s.LastTerminationState.Terminated == nil {
			s.LastTerminationState.Terminated = lost("The container could not be located when the pod was deleted.  The container used to be Running")
			s.RestartCount++
		}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: g.creating()}
	}
}

func (g *generator) mainsExist() bool {
	for i := range g.Pod.Spec.Containers {
		if g.Machine.Observed.Latest(g.Pod.Spec.Containers[i].Name) != nil {
			return true
		}
	}
	return false
}

// waiting replaces the state of a container that will start (again) by why it does not yet.
func (g *generator) waiting(s *corev1.ContainerStatus, c *corev1.Container, newest *machine.Container, init bool) {
	if s.State.Running != nil || g.Plan.Terminating {
		return
	}
	if newest != nil && newest.State == machine.Exited && !machine.ShouldRestart(g.Pod, c, init, newest.ExitCode) {
		return
	}
	why, known := g.Plan.Waiting[c.Name]
	if m := g.Machine.Memory.Containers[c.Name]; !known && m != nil && m.Waiting.Reason != "" {
		why, known = m.Waiting, true
	}
	if !known {
		return
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

func (g *generator) readiness(s *corev1.ContainerStatus, c *corev1.Container, newest *machine.Container, init bool) {
	started := s.State.Running != nil && newest != nil && g.Machine.Started(c, newest)
	s.Started, s.Ready = &started, false
	switch {
	case init && !machine.IsSidecar(c):
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
	case g.isEphemeral(c.Name):
	case started:
		s.Ready = c.ReadinessProbe == nil || g.Machine.Memory.Probes[newest.ID].Readiness == machine.Success
	}
}

func (g *generator) isEphemeral(name string) bool {
	_, kind := machine.Spec(g.Pod, name)
	return kind == "ephemeralContainers"
}

func (g *generator) mounts(c *corev1.Container) []corev1.VolumeMountStatus {
	var out []corev1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		v := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := corev1.RecursiveReadOnlyDisabled
			want := m.RecursiveReadOnly
			if want != nil && (*want == corev1.RecursiveReadOnlyEnabled || *want == corev1.RecursiveReadOnlyIfPossible && g.RRO) {
				mode = corev1.RecursiveReadOnlyEnabled
			}
			v.RecursiveReadOnly = &mode
		}
		out = append(out, v)
	}
	return out
}

// resources answers the resources in force: the spec's, unless the runtime still has others.
func (g *generator) resources(c *corev1.Container, got *machine.Container) *corev1.ResourceRequirements {
	r := c.Resources.DeepCopy()
	have := got.Resources
	if got.State != machine.Running || have == nil || g.Machine.ResourcesMatch == nil || g.Machine.ResourcesMatch(c, got) {
		return r
	}
	if _, set := r.Limits[corev1.ResourceMemory]; set && have.MemoryLimitInBytes > 0 {
		r.Limits[corev1.ResourceMemory] = *resource.NewQuantity(have.MemoryLimitInBytes, resource.BinarySI)
	}
	if machine.MatchCPU(c, got) {
		return r
	}
	if _, set := r.Limits[corev1.ResourceCPU]; set && have.CpuQuota > 0 && have.CpuPeriod > 0 {
		r.Limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(have.CpuQuota*1000/have.CpuPeriod, resource.DecimalSI)
	}
	if _, set := r.Requests[corev1.ResourceCPU]; set && have.CpuShares > 0 {
		r.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(math.Ceil(float64(have.CpuShares)*1000/1024)), resource.DecimalSI)
	}
	return r
}
