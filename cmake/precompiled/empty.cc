// The one source of each target that holds a precompiled header.
int main() { return 0; }
