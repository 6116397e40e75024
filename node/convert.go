package node

import (
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/launch"
	"github.com/yare-project/yare/node/machine"
)

func fromSandbox(s *runtimeapi.PodSandboxStatus) machine.Sandbox {
	out := machine.Sandbox{ID: s.Id, Ready: s.State == runtimeapi.PodSandboxState_SANDBOX_READY, Attempt: s.GetMetadata().GetAttempt(),
		CreatedAt: time.Unix(0, s.CreatedAt)}
	if ip := s.GetNetwork().GetIp(); ip != "" {
		out.IPs = append(out.IPs, ip)
	}
	for _, ip := range s.GetNetwork().GetAdditionalIps() {
		out.IPs = append(out.IPs, ip.Ip)
	}
	return out
}

func fromStatus(s *runtimeapi.ContainerStatus) machine.Container {
	c := machine.Container{ID: s.Id, Name: s.GetMetadata().GetName(), Attempt: int(s.GetMetadata().GetAttempt()),
		Hash: s.Annotations[launch.AnnotationHash], CreatedAt: stamp(s.CreatedAt), StartedAt: stamp(s.StartedAt), FinishedAt: stamp(s.FinishedAt),
		ExitCode: s.ExitCode, Reason: s.Reason, Message: s.Message, Image: s.GetImage().GetImage(), ImageID: s.ImageId, ImageRef: s.ImageRef,
		LogPath: s.LogPath, Resources: s.GetResources().GetLinux(), User: s.GetUser().GetLinux(), StopSignal: s.StopSignal,
		TerminationPath: s.Annotations[launch.AnnotationTerminationPath], TerminationPolicy: s.Annotations[launch.AnnotationTerminationPolicy]}
	if name := s.Labels[launch.LabelContainerName]; name != "" {
		c.Name = name
	}
	if n, err := strconv.Atoi(s.Annotations[launch.AnnotationRestartCount]); err == nil {
		c.Attempt = n
	}
	switch s.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		c.State = machine.Created
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		c.State = machine.Running
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		c.State = machine.Exited
	default:
		c.State = machine.Unknown
	}
	return c
}

func stamp(nanos int64) time.Time {
	if nanos == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanos)
}
