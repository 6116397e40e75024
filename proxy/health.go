package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// healthServer tells load balancers, on each Service's healthCheckNodePort, whether this node has endpoints of it
// (API documentation of externalTrafficPolicy).
type healthServer struct {
	log *slog.Logger

	mu        sync.Mutex
	listeners map[types.NamespacedName]*healthListener
}

type healthListener struct {
	port   int32
	server *http.Server
	local  int
}

func newHealthServer(log *slog.Logger) *healthServer {
	return &healthServer{log: log, listeners: map[types.NamespacedName]*healthListener{}}
}

// set brings the listener of a Service up to date.
func (h *healthServer) set(name types.NamespacedName, svc *corev1.Service, exists bool, ports []Port) {
	var port int32
	if exists {
		port = svc.Spec.HealthCheckNodePort
	}
	local := 0
	if len(ports) > 0 {
		for _, e := range ports[0].Endpoints {
			if e.Local && e.Ready {
				local++
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.listeners[name]
	if l != nil && l.port != port {
		_ = l.server.Close()
		delete(h.listeners, name)
		l = nil
	}
	if port == 0 {
		return
	}
	if l == nil {
		if l = h.listen(name, port); l == nil {
			return
		}
	}
	l.local = local
}

func (h *healthServer) listen(name types.NamespacedName, port int32) *healthListener {
	socket, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		h.log.Error("proxy: cannot answer a Service's health checks", "service", name, "port", port, "error", err)
		return nil
	}
	l := &healthListener{port: port}
	l.server = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { h.answer(w, name) })}
	h.listeners[name] = l
	go func() {
		if err := l.server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("proxy: health checks ended", "service", name, "error", err)
		}
	}()
	return l
}

func (h *healthServer) answer(w http.ResponseWriter, name types.NamespacedName) {
	h.mu.Lock()
	local := 0
	if l := h.listeners[name]; l != nil {
		local = l.local
	}
	h.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", fmt.Sprint(local))
	if local == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"service":        map[string]string{"namespace": name.Namespace, "name": name.Name},
		"localEndpoints": local, "serviceProxyHealthy": true,
	})
}

func (h *healthServer) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, l := range h.listeners {
		_ = l.server.Close()
		delete(h.listeners, name)
	}
}
