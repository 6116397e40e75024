package probe

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// health asks the standard gRPC health service.
func health(ctx context.Context, g *corev1.GRPCAction, podIP string, timeout time.Duration) (Answer, string, error) {
	service := ""
	if g.Service != nil {
		service = *g.Service
	}
	address := net.JoinHostPort(podIP, strconv.Itoa(int(g.Port)))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUserAgent("kube-probe/1.36"), grpc.WithNoProxy())
	if err != nil {
		return Bad, "", err
	}
	defer conn.Close()
	res, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{Service: service})
	if err == nil {
		if res.Status == healthpb.HealthCheckResponse_SERVING {
			return Good, "service healthy", nil
		}
		return Bad, fmt.Sprintf("service unhealthy (responded with %q)", res.Status), nil
	}
	switch status.Code(err) {
	case codes.Unimplemented:
		return Bad, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " + status.Convert(err).Message(), nil
	case codes.DeadlineExceeded:
		return Bad, fmt.Sprintf("timeout: health rpc did not complete within %v", timeout), nil
	case codes.Unavailable:
		return Bad, fmt.Sprintf("error: failed to connect service at %q: %s", address, status.Convert(err).Message()), nil
	}
	return Bad, fmt.Sprintf("error: health rpc failed: %v", err), nil
}
