package environ

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// serviceVars answers the variables of the services that a pod sees: those of its namespace, if it enables service links, and always
// the API server's.
func serviceVars(pod *corev1.Pod, src Sources) map[string]string {
	out := map[string]string{}
	for _, s := range src.Services(corev1.NamespaceDefault) {
		if s.Name == "kubernetes" {
			addService(out, s)
		}
	}
	if links := pod.Spec.EnableServiceLinks; links != nil && !*links {
		return out
	}
	for _, s := range src.Services(pod.Namespace) {
		addService(out, s)
	}
	return out
}

// addService sets the variables of one service with an address: NAME_SERVICE_HOST, NAME_SERVICE_PORT[_PORTNAME], and those of the same
// meaning that Docker's container links once had.
func addService(out map[string]string, s *corev1.Service) {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return
	}
	name := variable(s.Name)
	out[name+"_SERVICE_HOST"] = ip
	out[name+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		port := strconv.Itoa(int(p.Port))
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		if p.Name != "" {
			out[name+"_SERVICE_PORT_"+variable(p.Name)] = port
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			out[name+"_PORT"] = url
		}
		link := fmt.Sprintf("%s_PORT_%s_%s", name, port, strings.ToUpper(protocol))
		out[link] = url
		out[link+"_PROTO"] = strings.ToLower(protocol)
		out[link+"_PORT"] = port
		out[link+"_ADDR"] = ip
	}
}

func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
