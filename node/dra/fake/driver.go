// Package fake is a DRA driver for tests: it registers with a node agent and prepares claims over real sockets, and remembers what it was asked.
package fake

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/grpc"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Driver is a running driver. Make one with Start.
type Driver struct {
	drav1.UnimplementedDRAPluginServer
	healthv1alpha1.UnimplementedDRAResourceHealthServer
	registerapi.UnsafeRegistrationServer

	name     string
	devices  func(claim *drav1.Claim) []*drav1.Device
	server   *grpc.Server
	notified chan *registerapi.RegistrationStatus

	mu       sync.Mutex
	prepared map[string]bool // by claim uid
	calls    []string
	fault    string
	health   []*healthv1alpha1.DeviceHealth
	changed  chan struct{} // closed at the next change of health
}

// Start serves a driver of a name by a socket in dir, which a node agent watches. devices says what a claim is given.
func Start(dir, name string, devices func(claim *drav1.Claim) []*drav1.Device) (*Driver, error) {
	d := &Driver{name: name, devices: devices, server: grpc.NewServer(), prepared: map[string]bool{}, notified: make(chan *registerapi.RegistrationStatus, 16),
		changed: make(chan struct{})}
	listener, err := net.Listen("unix", filepath.Join(dir, name+"-reg.sock"))
	if err != nil {
		return nil, err
	}
	registerapi.RegisterRegistrationServer(d.server, d)
	drav1.RegisterDRAPluginServer(d.server, d)
	healthv1alpha1.RegisterDRAResourceHealthServer(d.server, d)
	go func() { _ = d.server.Serve(listener) }()
	return d, nil
}

// Stop ends the driver; its socket goes.
func (d *Driver) Stop() { d.server.Stop() }

// Registered hears each time that a node agent says how the registration went.
func (d *Driver) Registered() <-chan *registerapi.RegistrationStatus { return d.notified }

// Fail makes the driver refuse to prepare and unprepare with an error; empty ends that.
func (d *Driver) Fail(fault string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = fault
}

// Tell says of a device how it is.
func (d *Driver) Tell(pool, device string, health healthv1alpha1.HealthStatus, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.health = []*healthv1alpha1.DeviceHealth{{Device: &healthv1alpha1.DeviceIdentifier{PoolName: pool, DeviceName: device}, Health: health, Message: message}}
	close(d.changed)
	d.changed = make(chan struct{})
}

// NodeWatchResources implements healthv1alpha1.DRAResourceHealthServer.
func (d *Driver) NodeWatchResources(_ *healthv1alpha1.NodeWatchResourcesRequest, s healthv1alpha1.DRAResourceHealth_NodeWatchResourcesServer) error {
	for {
		d.mu.Lock()
		health, changed := d.health, d.changed
		d.mu.Unlock()
		if err := s.Send(&healthv1alpha1.NodeWatchResourcesResponse{Devices: health}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return nil
		}
	}
}

// Prepared lists the uids of the claims that are prepared.
func (d *Driver) Prepared() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []string{}
	for uid := range d.prepared {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

// Calls lists what was asked, such as "prepare default/claim".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// GetInfo implements registerapi.RegistrationServer.
func (d *Driver) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: registerapi.DRAPlugin, Name: d.name, SupportedVersions: []string{drav1.DRAPluginService}}, nil
}

// NotifyRegistrationStatus implements registerapi.RegistrationServer.
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registerapi.RegistrationStatus) (*registerapi.RegistrationStatusResponse, error) {
	select {
	case d.notified <- s:
	default:
	}
	return &registerapi.RegistrationStatusResponse{}, nil
}

// NodePrepareResources implements drav1.DRAPluginServer.
func (d *Driver) NodePrepareResources(_ context.Context, r *drav1.NodePrepareResourcesRequest) (*drav1.NodePrepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		d.calls = append(d.calls, fmt.Sprintf("prepare %s/%s", c.Namespace, c.Name))
		if d.fault != "" {
			out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Error: d.fault}
			continue
		}
		d.prepared[c.Uid] = true
		out.Claims[c.Uid] = &drav1.NodePrepareResourceResponse{Devices: d.devices(c)}
	}
	return out, nil
}

// NodeUnprepareResources implements drav1.DRAPluginServer.
func (d *Driver) NodeUnprepareResources(_ context.Context, r *drav1.NodeUnprepareResourcesRequest) (*drav1.NodeUnprepareResourcesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		d.calls = append(d.calls, fmt.Sprintf("unprepare %s/%s", c.Namespace, c.Name))
		if d.fault != "" {
			out.Claims[c.Uid] = &drav1.NodeUnprepareResourceResponse{Error: d.fault}
			continue
		}
		delete(d.prepared, c.Uid)
		out.Claims[c.Uid] = &drav1.NodeUnprepareResourceResponse{}
	}
	return out, nil
}
