// Command prog is the one program of the images that node tests run.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "prog: no command")
		os.Exit(2)
	}
	switch os.Args[1] {
	case "wait": // until SIGTERM
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		fmt.Println("waiting")
		<-stop
		fmt.Println("stopped")
	case "print":
		for _, a := range os.Args[2:] {
			fmt.Println(a)
		}
	case "cat":
		io.Copy(os.Stdout, os.Stdin)
	case "upper": // answers each line of input, and says where it read the end
		s := bufio.NewScanner(os.Stdin)
		for s.Scan() {
			fmt.Println("got " + s.Text())
		}
		fmt.Fprintln(os.Stderr, "end of input")
	case "exit":
		n, _ := strconv.Atoi(os.Args[2])
		os.Exit(n)
	case "http": // address, body
		l, err := net.Listen("tcp", os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("listening")
		http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, os.Args[3]) }))
	default:
		fmt.Fprintln(os.Stderr, "prog: unknown command "+os.Args[1])
		os.Exit(2)
	}
}
