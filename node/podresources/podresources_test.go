package podresources_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/yare-project/yare/node/dra"
	"github.com/yare-project/yare/node/pluginregistry"
	"github.com/yare-project/yare/node/podresources"
)

const patience = 20 * time.Second

func ptr[T any](v T) *T { return &v }

// node is what a server tells of: a pod "gpu" with devices, one that is over, and one whose claim is not prepared.
func node() []*corev1.Pod {
	pod := func(name string, phase corev1.PodPhase, containers ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Status: corev1.PodStatus{Phase: phase}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
		return p
	}
	gpu := pod("gpu", corev1.PodRunning, "train", "plain")
	gpu.Spec.InitContainers = []corev1.Container{{Name: "once"}, {Name: "sidecar", RestartPolicy: ptr(corev1.ContainerRestartPolicyAlways)}}
	return []*corev1.Pod{gpu, pod("waits", corev1.PodPending, "train"), pod("done", corev1.PodSucceeded, "train"), pod("broken", corev1.PodFailed, "train")}
}

func uses(pod *corev1.Pod, c *corev1.Container) ([]dra.Use, error) {
	switch {
	case pod.Name == "waits":
		return nil, errors.New("claim c is not prepared")
	case c.Name == "train":
		return []dra.Use{{Namespace: "default", Claim: "c", Devices: []dra.Device{
			{Driver: "gpu.example.com", Pool: "n1", Name: "d0", CDI: []string{"example.com/gpu=d0", "example.com/fabric=0"}},
			{Driver: "gpu.example.com", Pool: "n1", Name: "d1", Share: ptr("s1"), CDI: []string{"example.com/gpu=d1"}}}}}, nil
	}
	return nil, nil
}

// run serves, and answers the function that ends it.
func run(t *testing.T, dirs ...string) (stop func() error) {
	t.Helper()
	pods := node()
	s := podresources.New(podresources.Config{Dirs: dirs, Pods: func() []*corev1.Pod { return pods }, Pod: func(namespace, name string) (*corev1.Pod, bool) {
		for _, p := range pods {
			if p.Namespace == namespace && p.Name == name {
				return p, true
			}
		}
		return nil, false
	}, Uses: uses})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = s.Run(ctx)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func dial(t *testing.T, dir string) (context.Context, podresourcesv1.PodResourcesListerClient, v1alpha1.PodResourcesListerClient) {
	t.Helper()
	path := filepath.Join(dir, podresources.SocketName)
	deadline := time.Now().Add(patience)
	for {
		c, err := net.Dial("unix", path)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	conn, err := pluginregistry.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx, podresourcesv1.NewPodResourcesListerClient(conn), v1alpha1.NewPodResourcesListerClient(conn)
}

func TestDevicesOfPods(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	run(t, dir)
	ctx, v1, old := dial(t, dir)
	gpu := &podresourcesv1.PodResources{Name: "gpu", Namespace: "default", Containers: []*podresourcesv1.ContainerResources{{Name: "sidecar"},
		{Name: "train", DynamicResources: []*podresourcesv1.DynamicResource{{ClaimName: "c", ClaimNamespace: "default", ClaimResources: []*podresourcesv1.ClaimResource{
			{DriverName: "gpu.example.com", PoolName: "n1", DeviceName: "d0", CdiDevices: []*podresourcesv1.CDIDevice{{Name: "example.com/gpu=d0"}, {Name: "example.com/fabric=0"}}},
			{DriverName: "gpu.example.com", PoolName: "n1", DeviceName: "d1", ShareId: ptr("s1"), CdiDevices: []*podresourcesv1.CDIDevice{{Name: "example.com/gpu=d1"}}}}}}},
		{Name: "plain"}}}
	waits := &podresourcesv1.PodResources{Name: "waits", Namespace: "default", Containers: []*podresourcesv1.ContainerResources{{Name: "train"}}}
	list, err := v1.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&podresourcesv1.ListPodResourcesResponse{PodResources: []*podresourcesv1.PodResources{gpu, waits}}, list, protocmp.Transform()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	one, err := v1.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodNamespace: "default", PodName: "gpu"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&podresourcesv1.GetPodResourcesResponse{PodResources: gpu}, one, protocmp.Transform()); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
	_, err = v1.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodNamespace: "other", PodName: "gpu"})
	if status.Convert(err).Message() != "pod gpu in namespace other not found" {
		t.Errorf("Get of another pod: %v", err)
	}
	if all, err := v1.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{}); err != nil || len(all.Devices)+len(all.CpuIds)+len(all.Memory) != 0 {
		t.Errorf("GetAllocatableResources: %v, %v", all, err)
	}
	before, err := old.List(ctx, &v1alpha1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantOld := &v1alpha1.ListPodResourcesResponse{PodResources: []*v1alpha1.PodResources{
		{Name: "gpu", Namespace: "default", Containers: []*v1alpha1.ContainerResources{{Name: "train"}, {Name: "plain"}}},
		{Name: "waits", Namespace: "default", Containers: []*v1alpha1.ContainerResources{{Name: "train"}}}}}
	if diff := cmp.Diff(wantOld, before, protocmp.Transform()); diff != "" {
		t.Errorf("List of v1alpha1 (-want +got):\n%s", diff)
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	dir := t.TempDir()
	run(t, dir)
	ctx, v1, _ := dial(t, dir)
	for {
		_, err := v1.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
		if err == nil {
			continue
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("error %v", err)
		}
		return
	}
}

func TestSocketsOfOthersAreLeftAlone(t *testing.T) {
	own, served, stale, absent := t.TempDir(), t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "absent")
	path := func(dir string) string { return filepath.Join(dir, podresources.SocketName) }
	other, err := net.Listen("unix", path(served))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	crashed, err := net.Listen("unix", path(stale))
	if err != nil {
		t.Fatal(err)
	}
	crashed.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = crashed.Close()
	stop := run(t, own, served, stale, absent)
	for _, dir := range []string{own, stale} {
		ctx, v1, _ := dial(t, dir)
		if _, err := v1.List(ctx, &podresourcesv1.ListPodResourcesRequest{}); err != nil {
			t.Error(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	for dir, want := range map[string]bool{own: false, stale: false, served: true, absent: false} {
		if _, err := os.Lstat(path(dir)); (err == nil) != want {
			t.Errorf("socket in %s afterwards: %v", dir, err)
		}
	}
	if _, err := os.Stat(absent); err == nil {
		t.Error("a folder was made that nobody asked for")
	}
}

func TestFolderThatCannotServe(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, podresources.SocketName), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := podresources.New(podresources.Config{Dirs: []string{dir}})
	if err := s.Run(context.Background()); err == nil {
		t.Error("a file was taken for a socket")
	}
	if b, _ := os.ReadFile(filepath.Join(dir, podresources.SocketName)); string(b) != "mine" {
		t.Errorf("the file is now %q", b)
	}
}
