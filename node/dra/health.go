package dra

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

const (
	staleAfter  = 30 * time.Second // unless the driver says otherwise
	watchAgain  = 5 * time.Second  // after a driver's stream has ended
	longestTold = 1024             // of what a driver says about a device, in bytes
)

// deviceKey names a device.
type deviceKey struct{ driver, pool, device string }

// health is what a driver said last of a device, and until when that holds.
type health struct {
	status  corev1.ResourceHealthStatus
	message string
	until   time.Time
}

// watchHealth follows what a driver says of its devices' health (KEP-4680), as long as it is registered. A driver need not say anything.
func (m *Manager) watchHealth(ctx context.Context, name string, d *driver) {
	for ctx.Err() == nil {
		err := m.followHealth(ctx, name, d)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		select {
		case <-ctx.Done():
		case <-m.cfg.Clock.After(watchAgain):
		}
	}
}

func (m *Manager) followHealth(ctx context.Context, name string, d *driver) error {
	stream, err := healthv1alpha1.NewDRAResourceHealthClient(d.conn).NodeWatchResources(ctx, &healthv1alpha1.NodeWatchResourcesRequest{})
	if err != nil {
		return err
	}
	for {
		news, err := stream.Recv()
		if err != nil {
			return err
		}
		m.takeHealth(name, news.GetDevices())
	}
}

// takeHealth takes in a driver's news; what it does not name any more is unknown once its time is over.
func (m *Manager) takeHealth(driver string, devices []*healthv1alpha1.DeviceHealth) {
	now := m.cfg.Clock.Now()
	changed := map[deviceKey]bool{}
	m.mu.Lock()
	for _, d := range devices {
		k := deviceKey{driver, d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		h := health{status: corev1.ResourceHealthStatusUnknown, message: shortened(d.GetMessage()), until: now.Add(staleAfter)}
		switch d.GetHealth() {
		case healthv1alpha1.HealthStatus_HEALTHY:
			h.status = corev1.ResourceHealthStatusHealthy
		case healthv1alpha1.HealthStatus_UNHEALTHY:
			h.status = corev1.ResourceHealthStatusUnhealthy
		}
		if s := d.GetHealthCheckTimeoutSeconds(); s > 0 {
			h.until = now.Add(time.Duration(s) * time.Second)
		}
		old, known := m.health[k]
		if !known || old.status != h.status || old.message != h.message || !old.until.After(now) {
			changed[k] = true
		}
		m.health[k] = h
	}
	pods := m.usersOf(changed)
	m.mu.Unlock()
	m.cfg.Changed(pods)
}

func shortened(message string) string {
	if len(message) > longestTold {
		return message[:longestTold-3] + "..."
	}
	return message
}

// usersOf lists the pods with any of the devices. m.mu is held.
func (m *Manager) usersOf(devices map[deviceKey]bool) []types.UID {
	var out []types.UID
	if len(devices) == 0 {
		return nil
	}
	for _, c := range m.claims {
		for driver, list := range c.Devices {
			if slices.ContainsFunc(list, func(p preparation) bool { return devices[deviceKey{driver, p.Pool, p.Device}] }) {
				out = append(out, c.Pods...)
				break
			}
		}
	}
	return out
}

// expireHealth forgets what no longer holds.
func (m *Manager) expireHealth() {
	now := m.cfg.Clock.Now()
	stale := map[deviceKey]bool{}
	m.mu.Lock()
	for k, h := range m.health {
		if !h.until.After(now) {
			stale[k] = true
			delete(m.health, k)
		}
	}
	pods := m.usersOf(stale)
	m.mu.Unlock()
	m.cfg.Changed(pods)
}

// Health is what is known of the devices of a container, as its status has it; nil if none are prepared.
func (m *Manager) Health(pod *corev1.Pod, container *corev1.Container) []corev1.ResourceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []corev1.ResourceStatus
	list, err := uses(pod, container)
	if err != nil {
		return nil
	}
	for _, u := range list {
		if u.title == "" {
			continue
		}
		title := "claim:" + u.title
		if u.request != "" {
			title += "/" + u.request
		}
		if list := m.healthOf(pod, u.claim, u.request); len(list) > 0 {
			out = append(out, corev1.ResourceStatus{Name: corev1.ResourceName(title), Resources: list})
		}
	}
	return out
}

func (m *Manager) healthOf(pod *corev1.Pod, claimName, request string) []corev1.ResourceHealth {
	var out []corev1.ResourceHealth
	c := m.find(pod, claimName)
	if c == nil {
		return nil
	}
	for _, driver := range c.Drivers {
		for _, d := range c.Devices[driver] {
			if !d.of(request) {
				continue
			}
			one := corev1.ResourceHealth{ResourceID: corev1.ResourceID(fmt.Sprintf("%s/%s/%s", driver, d.Pool, d.Device)), Health: corev1.ResourceHealthStatusUnknown}
			if len(d.CDI) > 0 {
				one.ResourceID = corev1.ResourceID(d.CDI[0])
			}
			if h, known := m.health[deviceKey{driver, d.Pool, d.Device}]; known {
				one.Health = h.status
				if h.message != "" {
					one.Message = &h.message
				}
			}
			if !slices.ContainsFunc(out, func(o corev1.ResourceHealth) bool { return o.ResourceID == one.ResourceID }) {
				out = append(out, one)
			}
		}
	}
	return out
}
