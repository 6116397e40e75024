package core

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/yare-project/yare/kind"
)

var (
	upgradeMethods = []string{"GET", "POST"}
	proxyMethods   = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}
	nodeResource   = schema.GroupResource{Resource: "nodes"}
	// agentAddresses are how a node's agent is reached, best first.
	agentAddresses = []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeInternalDNS, corev1.NodeHostName, corev1.NodeExternalIP, corev1.NodeExternalDNS}
)

// agentTarget is a path of the agent on a pod's node.
func agentTarget(ctx context.Context, env kind.Env, pod *corev1.Pod, path string, query url.Values) (kind.Target, error) {
	if pod.Spec.NodeName == "" {
		return kind.Target{}, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	obj, err := env.Get(ctx, nodeResource, "", pod.Spec.NodeName)
	if err != nil {
		return kind.Target{}, err
	}
	host, err := agentHost(env, obj.(*corev1.Node))
	if err != nil {
		return kind.Target{}, err
	}
	return kind.Target{URL: &url.URL{Scheme: "https", Host: host, Path: path, RawQuery: query.Encode()}, Node: pod.Spec.NodeName, Stream: true}, nil
}

// agentHost is the host and port of a node's agent.
func agentHost(env kind.Env, node *corev1.Node) (string, error) {
	port := int(node.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port <= 0 {
		port = env.Settings().NodeAgentPort
	}
	for _, want := range agentAddresses {
		for _, a := range node.Status.Addresses {
			if a.Type == want && a.Address != "" {
				return net.JoinHostPort(a.Address, strconv.Itoa(port)), nil
			}
		}
	}
	return "", apierrors.NewInternalError(fmt.Errorf("node %s: no preferred addresses found; known addresses: %v", node.Name, node.Status.Addresses))
}

// containerOf is the container that a request means: the one it names, or the only one.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names []string
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	if name == "" {
		if len(pod.Spec.Containers) == 1 {
			return pod.Spec.Containers[0].Name, nil
		}
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", pod.Name, names))
	}
	for _, n := range names {
		if n == name {
			return name, nil
		}
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
}
