package freeport_test

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/yare-project/yare/internal/freeport"
)

func TestFoundPortsCanBeListenedOnAndAreNoOutgoingConnections(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	lowest, err := strconv.Atoi(strings.Fields(string(raw))[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		port, err := freeport.Find("127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		if port >= lowest {
			t.Errorf("port %d is of the range from %d that outgoing connections are given", port, lowest)
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		p, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = l.Close(), p.Close()
	}
}

func TestNoPortOnAnAddressThatIsNotHere(t *testing.T) {
	if port, err := freeport.Find("192.0.2.1"); err == nil || !strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("%d, %v", port, err)
	}
}
