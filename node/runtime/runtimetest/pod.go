package runtimetest

import (
	"path/filepath"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/yare-project/yare/node/runtime"
)

// Pod is one sandbox.
type Pod struct {
	t    testing.TB
	C    cri.RuntimeServiceClient
	ID   string
	Conf *cri.PodSandboxConfig
}

// RunPod runs a sandbox in the default namespace; its UID is its name and "-uid".
func RunPod(t testing.TB, r *runtime.Runtime, name string, change ...func(*cri.PodSandboxConfig)) *Pod {
	t.Helper()
	p := &Pod{t: t, C: cri.NewRuntimeServiceClient(r.Conn())}
	p.Conf = &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"},
		Labels:       map[string]string{"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "default", "io.kubernetes.pod.uid": name + "-uid"},
		Hostname:     name,
		LogDirectory: t.TempDir(),
		Linux:        &cri.LinuxPodSandboxConfig{CgroupParent: "/" + cgroupRoot(r.ID()) + "/" + name},
	}
	for _, f := range change {
		f(p.Conf)
	}
	began := time.Now()
	resp, err := p.C.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: p.Conf})
	if err != nil {
		t.Fatalf("run pod: %v", err)
	}
	t.Logf("sandbox ran after %v", time.Since(began).Round(time.Millisecond))
	p.ID = resp.PodSandboxId
	return p
}

// Reconnect uses another runtime's connection from now on.
func (p *Pod) Reconnect(r *runtime.Runtime) { p.C = cri.NewRuntimeServiceClient(r.Conn()) }

// IP is the sandbox's address.
func (p *Pod) IP() string {
	p.t.Helper()
	resp, err := p.C.PodSandboxStatus(p.t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: p.ID})
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.Status.Network.Ip
}

// LogPath is where a container's output goes.
func (p *Pod) LogPath(container string) string {
	return filepath.Join(p.Conf.LogDirectory, container, "0.log")
}

// Config describes a container of the test program, the way a node agent would.
func (p *Pod) Config(name string, args ...string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: Image}, Args: args, LogPath: name + "/0.log",
		Linux: &cri.LinuxContainerConfig{
			// -997 is what a guaranteed pod's containers get.
			Resources: &cri.LinuxContainerResources{OomScoreAdj: -997, MemoryLimitInBytes: 64 << 20, CpuQuota: 50000, CpuPeriod: 100000, CpuShares: 512},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault}, NoNewPrivs: true,
			},
		},
	}
}

// Start creates and starts a container.
func (p *Pod) Start(c *cri.ContainerConfig) string {
	p.t.Helper()
	began := time.Now()
	created, err := p.C.CreateContainer(p.t.Context(), &cri.CreateContainerRequest{PodSandboxId: p.ID, SandboxConfig: p.Conf, Config: c})
	if err != nil {
		p.t.Fatalf("create container: %v", err)
	}
	if _, err := p.C.StartContainer(p.t.Context(), &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		p.t.Fatalf("start container: %v", err)
	}
	p.t.Logf("container %s started after %v", c.Metadata.Name, time.Since(began).Round(time.Millisecond))
	return created.ContainerId
}

// Run starts a container of the test program with arguments.
func (p *Pod) Run(name string, args ...string) string {
	p.t.Helper()
	return p.Start(p.Config(name, args...))
}

// Status asks the runtime about a container.
func (p *Pod) Status(id string) *cri.ContainerStatus {
	p.t.Helper()
	resp, err := p.C.ContainerStatus(p.t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.Status
}

// Exec runs a command to its end and returns its output.
func (p *Pod) Exec(id string, cmd ...string) string {
	p.t.Helper()
	resp, err := p.C.ExecSync(p.t.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: 20})
	if err != nil {
		p.t.Fatalf("exec %v: %v", cmd, err)
	}
	if resp.ExitCode != 0 {
		p.t.Fatalf("exec %v: exit code %d: %s", cmd, resp.ExitCode, resp.Stderr)
	}
	return string(resp.Stdout)
}

// Events are the runtime's container events from now on; the channel closes with
// the stream.
func Events(t testing.TB, r *runtime.Runtime) <-chan *cri.ContainerEventResponse {
	t.Helper()
	stream, err := cri.NewRuntimeServiceClient(r.Conn()).GetContainerEvents(t.Context(), &cri.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan *cri.ContainerEventResponse, 100)
	go func() {
		defer close(out)
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			out <- e
		}
	}()
	return out
}

// Await waits for an event of a container.
func Await(t testing.TB, ch <-chan *cri.ContainerEventResponse, id string, want cri.ContainerEventType) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		select {
		case e, ok := <-ch:
			if !ok {
				t.Fatalf("event stream ended before %v of %s", want, id)
			}
			if e.ContainerId == id && e.ContainerEventType == want {
				return
			}
		case <-limit:
			t.Fatalf("no event %v of %s", want, id)
		}
	}
}
