package server_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/node/cri/fake"
	dradriver "github.com/yare-project/yare/node/dra/fake"
	"github.com/yare-project/yare/server"
)

// gpuCluster is a cluster with one node that has GPUs of a driver.
type gpuCluster struct {
	*quick
	runtime *fake.Runtime
	driver  *dradriver.Driver
}

func startGPUs(t *testing.T, gpus int) *gpuCluster {
	t.Helper()
	g := &gpuCluster{runtime: fake.New(fake.Config{})}
	dir := ""
	g.quick = startQuick(t, func(c *server.Config) {
		dir = filepath.Join(c.DataDir, "agent", "plugins_registry")
		c.CRI = func() (internalapi.RuntimeService, internalapi.ImageManagerService) { return g.runtime, g.runtime }
	})
	if err := os.MkdirAll(dir, 0o750); err != nil { // as a driver's own mount would
		t.Fatal(err)
	}
	var err error
	g.driver, err = dradriver.Start(dir, "gpu.example.com", func(claim *drav1.Claim) []*drav1.Device {
		c, err := g.api.ResourceV1().ResourceClaims(claim.Namespace).Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		var out []*drav1.Device
		for _, r := range c.Status.Allocation.Devices.Results {
			out = append(out, &drav1.Device{PoolName: r.Pool, DeviceName: r.Device, RequestNames: []string{r.Request}, CdiDeviceIds: []string{"example.com/gpu=" + r.Device}})
		}
		return out
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.driver.Stop)
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "dinghy-gpus"}, Spec: resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: ptr.To("dinghy"),
		Pool: resourcev1.ResourcePool{Name: "dinghy", ResourceSliceCount: 1}}}
	for i := range gpus {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: ptr.To("a100")}}})
	}
	class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu"),
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com" && device.attributes["gpu.example.com"].model == "a100"`}}}}}
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "one-gpu"}}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}
	api := g.api.ResourceV1()
	_, err = api.ResourceSlices().Create(t.Context(), slice, metav1.CreateOptions{})
	if err == nil {
		_, err = api.DeviceClasses().Create(t.Context(), class, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = api.ResourceClaimTemplates("default").Create(t.Context(), template, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gpuCluster) create(name string, change func(*corev1.Pod)) {
	g.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(1)), Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1"}}}}
	change(p)
	if _, err := g.api.CoreV1().Pods("default").Create(g.Context(), p, metav1.CreateOptions{}); err != nil {
		g.Fatal(err)
	}
}

func ofTemplate(p *corev1.Pod) {
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("one-gpu")}}
	p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
}

func (g *gpuCluster) runs(name string) *corev1.Pod {
	g.Helper()
	var pod *corev1.Pod
	g.until(name+" runs", func(ctx context.Context) (err error) {
		pod, err = g.api.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s: %+v", pod.Status.Phase, pod.Status.Conditions)
		}
		return err
	})
	return pod
}

// device is the CDI name that the pod's container was made with.
func (g *gpuCluster) device(name string) string {
	g.Helper()
	got := g.runtime.Find(name, "c")
	if got == nil {
		g.Fatalf("no container of %s", name)
	}
	devices := g.runtime.ContainerConfig(got.Id).CDIDevices
	if len(devices) != 1 {
		g.Fatalf("%s got devices %v, want one", name, devices)
	}
	return devices[0].Name
}

func TestPodsGetDevicesOfTheirOwn(t *testing.T) {
	g := startGPUs(t, 3)
	has := map[string]string{}
	for i := range 3 {
		g.create(fmt.Sprintf("p%d", i), ofTemplate)
	}
	for i := range 3 {
		name := fmt.Sprintf("p%d", i)
		g.runs(name)
		d := g.device(name)
		if other := has[d]; other != "" {
			t.Errorf("%s and %s both have %s", other, name, d)
		}
		has[d] = name
	}
	g.create("late", ofTemplate)
	g.until("late is told why it waits", func(ctx context.Context) error {
		p, err := g.api.CoreV1().Pods("default").Get(ctx, "late", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && strings.Contains(c.Message, "cannot allocate all claims: too few free devices for request gpu") &&
				strings.Contains(c.Message, "smallest change: the device on node dinghy back that claim default/p") {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", p.Status.Conditions)
	})
	free := g.device("p1")
	if err := g.api.CoreV1().Pods("default").Delete(t.Context(), "p1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.runs("late")
	if got := g.device("late"); got != free {
		t.Errorf("late has %s, free was %s", got, free)
	}
	g.until("the claim of the deleted pod is gone", func(ctx context.Context) error {
		list, err := g.api.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 3 {
			err = fmt.Errorf("%d claims", len(list.Items))
		}
		return err
	})
	g.until("what was given back is not prepared", func(context.Context) error {
		if got := g.driver.Prepared(); len(got) != 3 {
			return fmt.Errorf("prepared: %v", got)
		}
		return nil
	})
}

func TestSharedClaimServesSeveralPods(t *testing.T) {
	g := startGPUs(t, 1)
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "shared"}}
	claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}
	uses := func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("shared")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}
	g.create("a", uses) // it is there before its claim
	if _, err := g.api.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.create("b", uses)
	for _, name := range []string{"a", "b"} {
		if g.runs(name); g.device(name) != "example.com/gpu=gpu-0" {
			t.Errorf("%s has %s", name, g.device(name))
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := g.api.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	g.until("the claim is free and still there", func(ctx context.Context) error {
		c, err := g.api.ResourceV1().ResourceClaims("default").Get(ctx, "shared", metav1.GetOptions{})
		if err == nil && (c.Status.Allocation != nil || len(c.Status.ReservedFor) > 0 || len(c.Finalizers) > 0) {
			err = fmt.Errorf("it is %+v, finalizers %v", c.Status, c.Finalizers)
		}
		return err
	})
}

func TestExtendedResourceIsGivenOutAsDevices(t *testing.T) {
	g := startGPUs(t, 2)
	g.create("old-style", func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	})
	p := g.runs("old-style")
	if d := g.device("old-style"); !strings.HasPrefix(d, "example.com/gpu=gpu-") {
		t.Errorf("it has %s", d)
	}
	if e := p.Status.ExtendedResourceClaimStatus; e == nil || len(e.RequestMappings) != 1 || e.RequestMappings[0].ContainerName != "c" || e.RequestMappings[0].RequestName != "container-0-request-0" {
		t.Errorf("status.extendedResourceClaimStatus is %+v", e)
	}
	if err := g.api.CoreV1().Pods("default").Delete(t.Context(), "old-style", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.until("its claim goes with it", func(ctx context.Context) error {
		list, err := g.api.ResourceV1().ResourceClaims("default").List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%+v", list.Items)
		}
		return err
	})
}
